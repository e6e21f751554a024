update sumaclock.cron_runs r
set status = 'pending', attempts = r.attempts - 1, claimed_by = null, started_at = null, heartbeat_at = null
from unnest(%(ids)s::bigint[], %(attempts)s::smallint[]) as g (id, attempt)
where r.id = g.id and r.attempts = g.attempt and r.claimed_by is not distinct from %(worker)s and r.status = 'running'
returning r.id, pg_notify('cron_runs', '')
