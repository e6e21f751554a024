update sumaclock.cron_runs r
set status = 'running', attempts = r.attempts + 1, claimed_by = $1, dagster_run_id = $2,
    started_at = now(), heartbeat_at = now()
from sumaclock.cron_jobs j
where j.id = r.job_id
  -- As an array the choice is made once, before any row is changed.
  and r.id = any (array(
    select id
    from sumaclock.cron_runs
    where finished_at is null and status = 'pending' and due_at <= now()
    order by due_at, id
    limit $3
    for update skip locked))
returning r.id, r.job_id, r.scheduled_at, r.attempts, r.lost, j.kind, j.organization_id, j.user_id, j.payload::text,
          r.trigger::text, j.enabled or r.trigger in ('manual', 'request')
