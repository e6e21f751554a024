update sumaclock.cron_runs r
set status = g.status::sumaclock.run_status, started_at = to_timestamp(g.started), finished_at = to_timestamp(g.finished),
    result = g.result::jsonb, error = g.error
from unnest(%(ids)s::bigint[], %(attempts)s::smallint[], %(statuses)s::text[], %(started)s::float8[], %(finished)s::float8[],
            %(results)s::text[], %(errors)s::text[])
     as g (id, attempt, status, started, finished, result, error)
where r.id = g.id and r.attempts = g.attempt and r.claimed_by is not distinct from %(worker)s and r.status = 'running'
