select sumaclock.prune_job_errors(%(days)s, %(most)s)
