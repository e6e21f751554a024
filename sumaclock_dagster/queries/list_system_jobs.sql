-- The system jobs by name: their newest period and the last that ended. A job is overdue when nothing began for two
-- periods and a minute although a worker, which begins the current period at once, has been there for a minute.
select listed.name, listed.every::integer as every_seconds,
       last.period as period, last.started_at, last.finished_at, last.attempts, last.worker_id,
       ended.finished_at as ended_at, extract(epoch from ended.finished_at - ended.started_at)::float8 as duration_seconds,
       case when last.finished_at is null and last.attempts >= %(most_attempts)s and last.is_held is not true
            then pg_catalog.format('Its worker died with it %%s times; the next period tries again.', last.attempts)
            else ended.error end as error,
       ended.result,
       to_timestamp((floor(clock.epoch / listed.every) + 1) * listed.every) as next_period,
       workers.live as live_workers,
       coalesce(workers.since < now() - interval '1 minute', false)
           and coalesce(last.started_at, '-infinity') < now() - 2 * listed.every * interval '1 second' - interval '1 minute'
           and not (last.finished_at is null and last.is_held) is true as is_overdue,
       coalesce(last.finished_at is null and last.is_held, false) as is_running
from unnest(%(names)s::text[], %(every)s::float8[]) as listed (name, every)
cross join (select extract(epoch from now())::float8 as epoch) clock
cross join (
    select count(*) as live, min(w.started_at) as since
    from sumaclock.workers w
    where w.stopped_at is null and w.id in (select s.worker_id from sumaclock.worker_sessions s)
) workers
left join lateral (
    select r.*, r.worker_id in (select s.worker_id from sumaclock.worker_sessions s) as is_held
    from sumaclock.system_job_runs r
    where r.name = listed.name
    order by r.period desc
    limit 1
) last on true
left join lateral (
    select r.*
    from sumaclock.system_job_runs r
    where r.name = listed.name and r.finished_at is not null
    order by r.period desc
    limit 1
) ended on true
order by listed.name
