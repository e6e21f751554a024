select sumaclock.retry_once(%(jobid)s)
