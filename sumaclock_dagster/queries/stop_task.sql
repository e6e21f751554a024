update sumaclock.ai_tasks
set status = %(status)s::sumaclock.task_status, status_reason = %(reason)s, next_run_at = null, upcoming = '[]',
    last_scheduled_for = coalesce(%(last)s, last_scheduled_for)
where id = %(task)s
