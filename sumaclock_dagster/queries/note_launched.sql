with launched as (
    update sumaclock.dagster_launches l
    set state = 'launched', dagster_run_id = g.dagster_run, launched_at = clock_timestamp(), offered_until = null
    from unnest(%(ids)s::bigint[], %(dagster_runs)s::uuid[]) as g (id, dagster_run)
    where l.id = g.id and l.state = 'requested'
    returning l.cron_run_id, l.dagster_run_id
)
update sumaclock.cron_runs r
set dagster_run_id = l.dagster_run_id, heartbeat_at = now()
from launched l
where r.id = l.cron_run_id and r.claimed_by = -1 and r.status = 'running'
