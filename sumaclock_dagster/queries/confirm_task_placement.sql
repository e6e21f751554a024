-- A clock job that was made just before its minute may have missed it, so a run is written besides. Whichever of the two
-- comes first fires the task; the other finds that it did.
with enabled as (
    update sumaclock.cron_jobs set enabled = true, updated_at = now() where id = %(job)s and not enabled
), near as (
    insert into sumaclock.cron_runs (job_id, trigger, scheduled_at, due_at)
    select %(job)s, 'request', %(next_run_at)s, %(next_run_at)s
    where clock_timestamp() between %(next_run_at)s - interval '10 seconds' and %(next_run_at)s + interval '60 seconds'
      and not exists (select from sumaclock.cron_runs r
                      where r.job_id = %(job)s and r.scheduled_at = %(next_run_at)s and r.trigger = 'request' and r.status = 'pending')
    returning id
)
select pg_notify('cron_runs', '') from near
