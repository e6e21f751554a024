with picked as materialized (
    select id
    from sumaclock.cron_runs
    where finished_at is null and status = 'pending' and due_at <= now()
    order by due_at, id
    limit %(batch)s
    for update skip locked
), taken as (
    update sumaclock.cron_runs r
    set status = 'running', attempts = r.attempts + 1, claimed_by = %(worker)s, dagster_run_id = %(dagster_run)s,
        started_at = now(), heartbeat_at = now()
    from picked
    where r.id = picked.id
    returning r.id, r.job_id, r.scheduled_at, r.trigger, r.attempts, r.lost
)
select t.id, t.job_id, t.scheduled_at, t.attempts, t.lost, j.kind, j.organization_id, j.user_id, j.payload::text,
       t.trigger::text, j.enabled or t.trigger in ('manual', 'request')
from taken t
join sumaclock.cron_jobs j on j.id = t.job_id
order by t.id
