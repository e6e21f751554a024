select r.id, r.job_id, j.kind, j.organization_id, j.user_id, r.status, r.trigger, r.scheduled_at, r.due_at, r.started_at,
       r.finished_at, r.attempts, r.lost, r.result, r.error, r.claimed_by, r.dagster_run_id
from sumaclock.cron_runs r
join sumaclock.cron_jobs j on j.id = r.job_id
where r.id = any (%(ids)s) and r.finished_at is not null
order by r.finished_at, r.id
