-- Failed and newest change whenever a run fails, is retried or grows too old. Asked every minute, so it looks at runs of
-- these hours only: a run that fails later still is in the next report.
select count(*) as failed,
       coalesce(max(finished_at), 'epoch')::text as newest,
       extract(epoch from now())::float8 as seen_at
from sumaclock.cron_runs
where status = 'failed'
  and scheduled_at >= now() - make_interval(hours => %(hours)s + 1)
  and finished_at >= now() - make_interval(hours => %(hours)s);
