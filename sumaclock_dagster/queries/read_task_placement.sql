select t.status = 'active' and t.deleted_at is null, t.next_run_at, j.schedule, j.slot_since is not null
from sumaclock.ai_tasks t
join sumaclock.cron_jobs j on j.id = t.cron_job_id
where j.id = %(job)s
