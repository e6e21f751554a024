-- What each job's clock job should be, by its row. A task's job fires at the task's next occurrence, whatever the row says.
-- One that joined its slot in a future which the server's clock has left again is in none.
select j.id as job_id, j.schedule, j.overlap, j.enabled, t.id is not null as is_task,
       coalesce(t.status = 'active' and t.deleted_at is null, j.enabled) as fires, t.next_run_at,
       extract(epoch from now() - greatest(j.updated_at, t.updated_at))::float8 as age_seconds,
       coalesce(j.slot_since <= now(), false) as in_slot
from sumaclock.cron_jobs j
left join sumaclock.ai_tasks t on t.cron_job_id = j.id
where %(ids)s::uuid[] is null or j.id = any (%(ids)s::uuid[])
