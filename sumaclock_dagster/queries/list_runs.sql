select r.id, r.job_id, j.kind, j.organization_id, j.user_id, r.status, r.trigger, r.scheduled_at, r.due_at, r.started_at,
       r.finished_at, r.attempts, r.lost, r.result, r.error, r.claimed_by, r.dagster_run_id
from sumaclock.cron_runs r
join sumaclock.cron_jobs j on j.id = r.job_id
where (%(status)s::sumaclock.run_status is null or r.status = %(status)s::sumaclock.run_status)
  and (%(job)s::uuid is null or r.job_id = %(job)s::uuid)
  and (%(kind)s::text is null or j.kind = %(kind)s::text)
  and (%(organization)s::text is null or j.organization_id = %(organization)s::text)
order by r.id desc
limit %(limit)s
