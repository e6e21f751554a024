with fired as (
    insert into sumaclock.cron_runs (job_id, trigger, scheduled_at)
    select id, %(trigger)s::sumaclock.run_trigger, now() from sumaclock.cron_jobs where id = %(job)s
    returning id
)
select id, pg_notify('cron_runs', '') from fired
