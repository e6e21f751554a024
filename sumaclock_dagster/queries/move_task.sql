with moved as (
    update sumaclock.ai_tasks
    set next_run_at = %(next_run_at)s, last_scheduled_for = coalesce(%(last)s, last_scheduled_for),
        upcoming = %(upcoming)s::jsonb, zone_data = %(zone_data)s
    where id = %(task)s
    returning cron_job_id
)
update sumaclock.cron_jobs j
set schedule = %(schedule)s, enabled = true, updated_at = now()
from moved
where j.id = moved.cron_job_id
