-- From the next minute on the slots of their schedules fire these jobs. What fired them until now is gone already.
update sumaclock.cron_jobs j set slot_since = clock_timestamp() where j.id = any (%(ids)s::uuid[])
