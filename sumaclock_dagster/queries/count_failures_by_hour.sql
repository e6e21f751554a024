-- Every hour (UTC) that the last so many hours touch, with its failed runs by kind; an hour without any has kind null.
-- The bound on the minute is for the index, as in list_recent_failures.
with hours as (
    select generate_series(
        date_trunc('hour', now() - make_interval(hours => %(hours)s), 'UTC'),
        date_trunc('hour', now(), 'UTC'),
        interval '1 hour'
    ) as hour
), failed as (
    select date_trunc('hour', r.finished_at, 'UTC') as hour, j.kind, count(*) as failed
    from sumaclock.cron_runs r
    join sumaclock.cron_jobs j on j.id = r.job_id
    where r.status = 'failed'
      and r.finished_at >= now() - make_interval(hours => %(hours)s)
      and r.scheduled_at >= now() - make_interval(hours => %(hours)s, days => 7)
    group by 1, 2
)
select hours.hour, failed.kind, coalesce(failed.failed, 0) as failed
from hours
left join failed using (hour)
order by hours.hour, failed.kind;
