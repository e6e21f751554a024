with stale as materialized (
    select r.id, r.attempts,
           case when r.heartbeat_at < now() - %(lease)s * interval '1 second'
                then format('no sign of life for %%s s', extract(epoch from now() - r.heartbeat_at)::bigint)
                else 'its session ended' end as reason
    from sumaclock.cron_runs r
    left join sumaclock.workers w on w.id = r.claimed_by
    where r.status = 'running'
      and (r.heartbeat_at < now() - %(lease)s * interval '1 second'
           or (r.claimed_by not in (select worker_id from sumaclock.worker_sessions)
               and greatest(w.heartbeat_at, pg_postmaster_start_time()) < now() - %(dead_session)s * interval '1 second'))
), released as (
    update sumaclock.cron_runs r
    set status = case when r.lost + 1 >= %(max_lost)s then 'failed' else 'pending' end::sumaclock.run_status,
        lost = r.lost + 1,
        finished_at = case when r.lost + 1 >= %(max_lost)s then now() end,
        started_at = case when r.lost + 1 >= %(max_lost)s then r.started_at end,
        claimed_by = case when r.lost + 1 >= %(max_lost)s then r.claimed_by end,
        error = case when r.lost + 1 >= %(max_lost)s
                then format('Given up after %%s attempts that ended with their worker; the last, of worker %%s: %%s.',
                            r.lost + 1, r.claimed_by, s.reason)
                else format('Attempt %%s was released from worker %%s: %%s.', r.attempts, r.claimed_by, s.reason) end
    from stale s
    where r.id = s.id and r.attempts = s.attempts and r.status = 'running'
    returning r.status
), told as (
    select pg_notify('cron_runs', '') from (select from released where status = 'pending' limit 1) p
)
select count(*) filter (where status = 'pending'), count(*) filter (where status = 'failed'), (select count(*) from told)
from released
