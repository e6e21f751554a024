-- The rows of tasks' jobs as their tasks want them. A row that somebody has locked is being changed just now.
with wanted as (
    select j.id, w.schedule, w.fires
    from unnest(%(ids)s::uuid[], %(schedules)s::text[], %(fires)s::boolean[], %(moments)s::timestamptz[])
        as w (id, schedule, fires, next_run_at)
    join sumaclock.ai_tasks t on t.cron_job_id = w.id and t.next_run_at is not distinct from w.next_run_at
        and (t.status = 'active' and t.deleted_at is null) = w.fires
    join sumaclock.cron_jobs j on j.id = w.id
    where j.enabled <> w.fires or (w.fires and j.schedule <> w.schedule)
    for update of j skip locked
)
update sumaclock.cron_jobs j
set schedule = case when w.fires then w.schedule else j.schedule end, enabled = w.fires, updated_at = now()
from wanted w
where j.id = w.id
returning j.id
