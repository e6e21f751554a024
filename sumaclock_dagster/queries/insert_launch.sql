-- Nothing where the run, or the occurrence, has one under way.
with made as (
    insert into sumaclock.dagster_launches
        (cron_run_id, job_id, task_id, scheduled_for, idempotency_key, organization_id, user_id, target)
    values
        (%(run)s, %(job)s, %(task)s, %(scheduled_for)s, %(key)s, %(organization)s, %(user)s, %(target)s::jsonb)
    on conflict do nothing
    returning id
)
select id, pg_notify('sumaclock_launches', '') from made
