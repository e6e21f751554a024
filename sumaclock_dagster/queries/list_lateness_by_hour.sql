-- Every hour (UTC) that the last so many hours touch, with the firings of its minutes that have begun: lateness in
-- seconds, nulls where there are none. A handler's own retries are not late; attempts that a worker lost are.
with hours as (
    select generate_series(
        date_trunc('hour', now() - make_interval(hours => %(hours)s), 'UTC'),
        date_trunc('hour', now(), 'UTC'),
        interval '1 hour'
    ) as hour
), begun as (
    select date_trunc('hour', r.scheduled_at, 'UTC') as hour,
           extract(epoch from r.started_at - r.scheduled_at)::float8 as lateness
    from sumaclock.cron_runs r
    where r.scheduled_at >= now() - make_interval(hours => %(hours)s)
      and r.started_at is not null
      and r.trigger in ('clock', 'catch_up')
      and r.attempts - r.lost <= 1
)
select hours.hour,
       count(begun.lateness) as firings,
       percentile_cont(0.50) within group (order by begun.lateness) as p50,
       percentile_cont(0.95) within group (order by begun.lateness) as p95,
       percentile_cont(0.99) within group (order by begun.lateness) as p99
from hours
left join begun using (hour)
group by hours.hour
order by hours.hour
