select pg_catalog.count(cron.unschedule(gone.jobid)) from unnest(%(jobids)s::bigint[]) as gone (jobid)
