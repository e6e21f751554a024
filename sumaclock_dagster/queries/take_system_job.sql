-- The lock of the job's name belongs to the session that executes it, so who gets it knows that nobody else does. The
-- first to insert the current period's row executes it; a row without an end is of a worker that died, or was stopped.
with locked as materialized (
    select pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('sumaclock system job ' || %(name)s::text, 0)) as mine
), taken as (
    insert into sumaclock.system_job_runs as r (name, period, worker_id)
    select %(name)s::text, to_timestamp(floor(extract(epoch from clock_timestamp())::float8 / %(every)s::float8) * %(every)s::float8),
           %(worker)s
    from locked
    where locked.mine
    on conflict (name, period) do update
    set worker_id = excluded.worker_id, attempts = r.attempts + 1, started_at = clock_timestamp()
    where r.finished_at is null and r.attempts < %(most_attempts)s
    returning r.period, r.attempts
)
select locked.mine, taken.period, taken.attempts
from locked
left join taken on true
