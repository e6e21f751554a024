-- Lateness and duration of the runs that ended within the last hour, by kind: how many at or below each bound (seconds),
-- all, and their sum. Lateness is of firings; neither a request by hand nor a handler's own retry is late.
with ended as (
    select j.kind,
           greatest(extract(epoch from r.started_at - r.scheduled_at)::float8, 0) as lateness,
           greatest(extract(epoch from r.finished_at - r.started_at)::float8, 0) as duration,
           r.trigger in ('clock', 'catch_up') and r.attempts - r.lost <= 1 as has_lateness
    from sumaclock.cron_runs r
    join sumaclock.cron_jobs j on j.id = r.job_id
    where r.started_at is not null
      and r.finished_at > now() - interval '1 hour'
      and r.scheduled_at >= now() - interval '25 hours'
), measured as (
    select 'lateness' as name, kind, lateness as seconds from ended where has_lateness
    union all
    select 'duration', kind, duration from ended
), binned as (
    select name, kind, width_bucket(seconds, %(edges)s::float8[]) as bin, count(*) as runs, sum(seconds) as seconds
    from measured
    group by name, kind, bin
)
select name, kind, array_agg(bin order by bin) as bins, array_agg(runs order by bin) as runs, sum(seconds) as seconds
from binned
group by name, kind
