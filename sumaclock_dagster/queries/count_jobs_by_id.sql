select count(*) from sumaclock.cron_jobs j where j.id = any (%(ids)s::uuid[])
