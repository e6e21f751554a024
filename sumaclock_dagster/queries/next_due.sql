select extract(epoch from due_at - now())::float8
from sumaclock.cron_runs
where claimed_by is null
order by due_at, id
limit 1
