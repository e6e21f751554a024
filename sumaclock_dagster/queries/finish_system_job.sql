update sumaclock.system_job_runs
set finished_at = clock_timestamp(), result = %(result)s::jsonb, error = %(error)s
where name = %(name)s and period = %(period)s and worker_id = %(worker)s and attempts = %(attempt)s and finished_at is null
