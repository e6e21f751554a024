select id, organization_id, user_id, kind, title, payload, cron, instant, timezone, status, status_reason, next_run_at,
       last_scheduled_for, cron_job_id, deleted_at, created_at, updated_at
from sumaclock.ai_tasks
where (%(organization_id)s::text is null or organization_id = %(organization_id)s)
  and (%(user_id)s::text is null or user_id = %(user_id)s)
  and (%(kind)s::text is null or kind = %(kind)s)
  and (%(status)s::text is null or status = %(status)s::sumaclock.task_status)
  and (deleted_at is not null) = %(deleted)s
order by created_at desc, id
limit %(limit)s
