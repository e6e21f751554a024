-- Dagster retries the Dagster run by itself: the new one goes on with the launch.
with moved as (
    update sumaclock.dagster_launches l
    set dagster_run_id = %(dagster_run)s, launched_at = clock_timestamp(), seen_on = null
    where l.id = %(id)s and l.state = 'launched'
    returning l.cron_run_id
)
update sumaclock.cron_runs r
set dagster_run_id = %(dagster_run)s, heartbeat_at = now()
from moved
where r.id = moved.cron_run_id and r.claimed_by = -1 and r.status = 'running'
