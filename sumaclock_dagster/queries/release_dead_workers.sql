-- Ending the worker and releasing its runs is one statement: a worker that is noted as stopped holds nothing. A run
-- whose row somebody has locked waits, with its worker, for the next look. A sign of life from the future is of before
-- the server's clock was set back, and says as little as an old one.
with dead as materialized (
    select w.id
    from sumaclock.workers w
    where w.stopped_at is null
      and w.id not in (select worker_id from sumaclock.worker_sessions)
      and case when w.started_at is null
               then w.requested_at not between now() - %(start)s * interval '1 second' and now() + %(start)s * interval '1 second'
               else greatest(w.heartbeat_at, pg_postmaster_start_time())
                    not between now() - %(dead_session)s * interval '1 second' and now() + %(dead_session)s * interval '1 second' end
    for update skip locked
), left_running as materialized (
    select r.id, r.claimed_by
    from sumaclock.cron_runs r
    join dead on dead.id = r.claimed_by
    where r.finished_at is null
), stale as materialized (
    select r.id
    from sumaclock.cron_runs r
    join left_running l on l.id = r.id
    where r.status = 'running'
    for update of r skip locked
), released as (
    update sumaclock.cron_runs r
    set status = case when r.lost + 1 >= %(max_lost)s then 'failed' else 'pending' end::sumaclock.run_status,
        lost = r.lost + 1,
        finished_at = case when r.lost + 1 >= %(max_lost)s then now() end,
        started_at = case when r.lost + 1 >= %(max_lost)s then r.started_at end,
        claimed_by = case when r.lost + 1 >= %(max_lost)s then 0 end,
        error = case when r.lost + 1 >= %(max_lost)s
                then format('Given up after %%s attempts that ended with their worker; the last, of worker %%s: its session ended.',
                            r.lost + 1, r.claimed_by)
                else format('Attempt %%s was released: the session of its worker %%s ended.', r.attempts, r.claimed_by) end
    from stale s
    where r.id = s.id and r.status = 'running'
    returning r.status
), buried as (
    update sumaclock.workers w
    set stopped_at = now()
    from dead
    where w.id = dead.id
      and not exists (select from left_running l where l.claimed_by = dead.id and l.id not in (select id from stale))
), told as (
    select pg_notify('cron_runs', '') from (select from released where status = 'pending' limit 1) p
)
select count(*) filter (where status = 'pending'), count(*) filter (where status = 'failed'), (select count(*) from told)
from released
