update sumaclock.ai_tasks t
set status = s.status::sumaclock.task_status, status_reason = s.reason, next_run_at = null, upcoming = '[]',
    last_scheduled_for = coalesce(s.last_at, t.last_scheduled_for)
from unnest(%(task_ids)s::uuid[], %(statuses)s::text[], %(reasons)s::text[], %(last_at)s::timestamptz[])
     as s (task_id, status, reason, last_at)
where t.id = s.task_id
