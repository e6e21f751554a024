select j.id as job_id, t.status = 'active' and t.deleted_at is null as fires, t.next_run_at, j.schedule,
       j.slot_since is not null as in_slot
from unnest(%(jobs)s::uuid[]) as wanted (id)
join sumaclock.cron_jobs j on j.id = wanted.id
join sumaclock.ai_tasks t on t.cron_job_id = j.id
