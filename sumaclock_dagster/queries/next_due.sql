select extract(epoch from due_at - now())::float8
from sumaclock.cron_runs
where finished_at is null and status = 'pending'
order by due_at, id
limit 1
