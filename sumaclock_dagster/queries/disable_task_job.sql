update sumaclock.cron_jobs set enabled = false, updated_at = now() where id = %(job)s and enabled
