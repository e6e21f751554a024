update sumaclock.cron_jobs j set slot_since = null where j.id = any (%(ids)s::uuid[]) and j.slot_since is not null
