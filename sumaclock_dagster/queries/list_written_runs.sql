select r.id
from sumaclock.cron_runs r
join unnest(%(ids)s::bigint[], %(attempts)s::smallint[]) as g (id, attempt) on r.id = g.id and r.attempts = g.attempt
where r.claimed_by = %(worker)s and r.finished_at is not null
