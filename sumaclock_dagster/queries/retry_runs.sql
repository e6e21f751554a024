update sumaclock.cron_runs r
set status = 'pending', due_at = now() + g.delay * interval '1 second', error = g.error,
    claimed_by = null, started_at = null, heartbeat_at = null
from unnest(%(ids)s::bigint[], %(attempts)s::smallint[], %(delays)s::float8[], %(errors)s::text[])
     as g (id, attempt, delay, error)
where r.id = g.id and r.attempts = g.attempt and r.claimed_by is not distinct from %(worker)s and r.status = 'running'
returning r.id, pg_notify('cron_runs', '')
