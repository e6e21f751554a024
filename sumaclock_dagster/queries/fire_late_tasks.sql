-- A task that somebody has locked is being settled or changed just now. A disabled job's catch-up would be skipped.
with late as materialized (
    select t.id, t.title, t.cron_job_id, t.next_run_at
    from sumaclock.ai_tasks t
    where t.status = 'active' and t.deleted_at is null and t.next_run_at <= now() - %(late)s * interval '1 second'
      and not exists (select from sumaclock.cron_runs r where r.job_id = t.cron_job_id and r.status in ('pending', 'running'))
    for update of t skip locked
), enabled as (
    update sumaclock.cron_jobs j set enabled = true, updated_at = now()
    from late where j.id = late.cron_job_id and not j.enabled
), fired as (
    insert into sumaclock.cron_runs (job_id, trigger, scheduled_at)
    select late.cron_job_id, 'catch_up', late.next_run_at from late order by late.next_run_at
    returning id, job_id
), told as (
    select pg_notify('cron_runs', '') from (select from fired limit 1) f
)
select late.id as task_id, late.title, late.cron_job_id as job_id, late.next_run_at as scheduled_at, fired.id as run_id,
       extract(epoch from now() - late.next_run_at)::float8 as late_seconds, (select count(*) from told) as told
from late
join fired on fired.job_id = late.cron_job_id
order by late.next_run_at, late.id
