select cron.unschedule(%(jobid)s::bigint)
