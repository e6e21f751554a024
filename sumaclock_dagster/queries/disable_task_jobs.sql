update sumaclock.cron_jobs j set enabled = false, updated_at = now() where j.id = any (%(jobs)s::uuid[]) and j.enabled
