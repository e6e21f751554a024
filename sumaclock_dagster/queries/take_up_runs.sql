update sumaclock.cron_runs r
set status = 'running', attempts = g.attempt, claimed_by = %(worker)s, dagster_run_id = %(dagster_run)s,
    started_at = now(), heartbeat_at = now()
from unnest(%(ids)s::bigint[], %(attempts)s::smallint[]) as g (id, attempt)
where r.id = g.id and r.attempts = g.attempt - 1 and r.status = 'pending'
returning r.id
