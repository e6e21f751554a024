-- The firings of the last so many days in bars of six hours (UTC); a bar without any has zeros.
with bars as (
    select generate_series(
        date_bin('6 hours', now() - make_interval(days => %(days)s), timestamptz '2000-01-01 00:00:00+00'),
        date_bin('6 hours', now(), timestamptz '2000-01-01 00:00:00+00'),
        interval '6 hours'
    ) as bar
), fired as (
    select date_bin('6 hours', r.scheduled_at, timestamptz '2000-01-01 00:00:00+00') as bar, r.status
    from sumaclock.cron_runs r
    where r.scheduled_at >= now() - make_interval(days => %(days)s)
      and r.trigger in ('clock', 'catch_up')
)
select bars.bar,
       count(*) filter (where fired.status = 'done') as done,
       count(*) filter (where fired.status = 'failed') as failed,
       count(*) filter (where fired.status = 'skipped') as skipped,
       count(*) filter (where fired.status in ('pending', 'running')) as unfinished
from bars
left join fired using (bar)
group by bars.bar
order by bars.bar
