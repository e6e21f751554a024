update sumaclock.cron_runs r
set heartbeat_at = now()
from unnest(%(ids)s::bigint[], %(attempts)s::smallint[]) as g (id, attempt)
where r.id = g.id and r.attempts = g.attempt and r.claimed_by is not distinct from %(worker)s and r.status = 'running'
returning r.id
