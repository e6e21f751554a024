with moved as (
    update sumaclock.ai_tasks t
    set next_run_at = m.next_run_at, last_scheduled_for = coalesce(m.last_at, t.last_scheduled_for),
        upcoming = m.upcoming::jsonb, zone_data = %(zone_data)s
    from unnest(%(task_ids)s::uuid[], %(next_run_at)s::timestamptz[], %(last_at)s::timestamptz[], %(upcoming)s::text[],
                %(schedules)s::text[]) as m (task_id, next_run_at, last_at, upcoming, schedule)
    where t.id = m.task_id
    returning t.cron_job_id, m.schedule
)
update sumaclock.cron_jobs j
set schedule = moved.schedule, enabled = true, updated_at = now()
from moved
where j.id = moved.cron_job_id
