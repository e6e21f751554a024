-- A clock job that was made just before its minute may have missed it, so a run is written besides. Whichever of the two
-- comes first fires the task; the other finds that it did.
with placed as materialized (
    select * from unnest(%(jobs)s::uuid[], %(next_run_at)s::timestamptz[]) as p (job_id, next_run_at)
), enabled as (
    update sumaclock.cron_jobs j set enabled = true, updated_at = now()
    from placed where j.id = placed.job_id and not j.enabled
), near as (
    insert into sumaclock.cron_runs (job_id, trigger, scheduled_at, due_at)
    select p.job_id, 'request', p.next_run_at, p.next_run_at
    from placed p
    where clock_timestamp() between p.next_run_at - interval '10 seconds' and p.next_run_at + interval '60 seconds'
      and not exists (select from sumaclock.cron_runs r
                      where r.job_id = p.job_id and r.scheduled_at = p.next_run_at and r.trigger = 'request' and r.status = 'pending')
    returning id
)
select pg_notify('cron_runs', '') where exists (select from near)
