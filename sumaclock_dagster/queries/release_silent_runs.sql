with stale as materialized (
    select r.id
    from sumaclock.cron_runs r
    join sumaclock.workers w on w.id = r.claimed_by
    where w.stopped_at is null and r.finished_at is null
      and r.heartbeat_at not between now() - %(lease)s * interval '1 second' and now() + %(lease)s * interval '1 second'
    for update of r skip locked
), released as (
    update sumaclock.cron_runs r
    set status = case when r.lost + 1 >= %(max_lost)s then 'failed' else 'pending' end::sumaclock.run_status,
        lost = r.lost + 1,
        finished_at = case when r.lost + 1 >= %(max_lost)s then now() end,
        started_at = case when r.lost + 1 >= %(max_lost)s then r.started_at end,
        claimed_by = case when r.lost + 1 >= %(max_lost)s then 0 end,
        error = case when r.lost + 1 >= %(max_lost)s
                then format('Given up after %%s attempts that ended with their worker; the last, of worker %%s: no sign of life for %%s s.',
                            r.lost + 1, r.claimed_by, extract(epoch from now() - r.heartbeat_at)::bigint)
                else format('Attempt %%s was released: worker %%s gave no sign of life for %%s s.',
                            r.attempts, r.claimed_by, extract(epoch from now() - r.heartbeat_at)::bigint) end
    from stale s
    where r.id = s.id and r.status = 'running'
    returning r.status
), told as (
    select pg_notify('cron_runs', '') from (select from released where status = 'pending' limit 1) p
)
select count(*) filter (where status = 'pending'), count(*) filter (where status = 'failed'), (select count(*) from told)
from released
