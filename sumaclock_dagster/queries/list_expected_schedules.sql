-- What the clock should have fired: each schedule of enabled jobs with the moment from which it counts, and as the row
-- without a schedule the newest minute that a task still waits for. A server that was down could not fire, and a job that
-- skips fires nothing while a run of its is open.
select job.schedule, greatest(min(job.since), pg_catalog.pg_postmaster_start_time()) as since
from (
    select j.schedule, greatest(j.updated_at, (
        select max(coalesce(newest.finished_at, 'infinity'))
        from (select r.finished_at from sumaclock.cron_runs r where r.job_id = j.id order by r.scheduled_at desc limit 10) newest
        where j.overlap = 'skip' or (j.overlap = 'auto' and j.schedule ~ ' seconds$')
    )) as since
    from sumaclock.cron_jobs j
    where j.enabled and not exists (select from sumaclock.ai_tasks t where t.cron_job_id = j.id)
) job
where job.since < 'infinity'
group by job.schedule
union all
select null, max(t.next_run_at)
from sumaclock.ai_tasks t
where t.status = 'active' and t.deleted_at is null
  and t.next_run_at <= now() - %(grace)s * interval '1 second'
  and t.next_run_at > pg_catalog.pg_postmaster_start_time()
having max(t.next_run_at) is not null
