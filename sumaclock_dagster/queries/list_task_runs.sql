select id, task_id, scheduled_for, trigger, status, result, error, cron_run_id, idempotency_key, started_at, finished_at
from sumaclock.ai_task_runs
where task_id = %(task_id)s
order by scheduled_for desc
limit %(limit)s
