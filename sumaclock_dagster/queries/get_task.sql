select id, organization_id, user_id, kind, title, payload, cron, instant, timezone, status, status_reason, next_run_at,
       last_scheduled_for, cron_job_id, deleted_at, created_at, updated_at
from sumaclock.ai_tasks
where id = %(task_id)s
