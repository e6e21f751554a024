-- Kinds that enabled jobs ask for, or that runs failed with recently, and that are not registered. The
-- bound on the minute is for the index, as in list_recent_failures.
with wanted as (
    select kind, count(*) as jobs, 0 as failed
    from sumaclock.cron_jobs
    where enabled and kind <> all (%(kinds)s::text[])
    group by kind
    union all
    select j.kind, 0, count(*)
    from sumaclock.cron_runs r
    join sumaclock.cron_jobs j on j.id = r.job_id
    where r.status = 'failed'
      and r.finished_at >= now() - make_interval(hours => %(hours)s)
      and r.scheduled_at >= now() - make_interval(hours => %(hours)s, days => 7)
      and j.kind <> all (%(kinds)s::text[])
    group by j.kind
)
select kind, sum(jobs)::bigint as enabled_jobs, sum(failed)::bigint as failed_runs
from wanted
group by kind
order by kind;
