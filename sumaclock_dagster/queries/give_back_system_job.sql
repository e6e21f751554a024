-- Its worker was stopped: the attempt doesn't count, and another worker may take it within the period.
update sumaclock.system_job_runs
set worker_id = null, attempts = attempts - 1
where name = %(name)s and period = %(period)s and worker_id = %(worker)s and attempts = %(attempt)s and finished_at is null
