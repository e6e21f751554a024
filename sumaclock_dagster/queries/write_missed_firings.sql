-- One run for the last firing that each job missed; where its policy catches up none, the run is skipped at once. A job
-- that skips missed nothing while a run of its was open, and gets none while one is, or while its firings are not held.
with missed as materialized (
    select j.id, j.kind, j.catch_up, due.moment
    from unnest(%(schedules)s::text[], %(moments)s::timestamptz[]) as due (schedule, moment)
    join sumaclock.cron_jobs j on j.schedule = due.schedule
    where j.enabled and j.updated_at < due.moment and (j.overlap <> 'skip' or j.id = any(%(held)s))
      and not exists (select from sumaclock.ai_tasks t where t.cron_job_id = j.id)
      and not exists (select from sumaclock.cron_runs r
                      where r.job_id = j.id and r.scheduled_at >= due.moment and r.trigger in ('clock', 'catch_up'))
      and not (j.overlap = 'skip' and exists (
          select
          from (select r.scheduled_at, r.finished_at from sumaclock.cron_runs r where r.job_id = j.id
                order by r.scheduled_at desc limit 10) newest
          where newest.finished_at is null or (newest.scheduled_at < due.moment and newest.finished_at >= due.moment)))
    for key share of j skip locked
), written as (
    insert into sumaclock.cron_runs (job_id, trigger, scheduled_at, status, claimed_by, finished_at, error)
    select id, 'catch_up', moment,
           case when catch_up = 'one' then 'pending' else 'skipped' end::sumaclock.run_status,
           case when catch_up = 'none' then 0 end,
           case when catch_up = 'none' then now() end,
           case when catch_up = 'none' then 'Missed by the clock; the job''s catch-up policy is none.' end
    from missed
    order by moment
    returning id, job_id, status::text
), told as (
    select pg_notify('cron_runs', '') from (select from written where status = 'pending' limit 1) w
)
select missed.id as job_id, missed.kind, missed.moment as scheduled_at, written.id as run_id, written.status,
       extract(epoch from now() - missed.moment)::float8 as late_seconds, (select count(*) from told) as told
from missed
join written on written.job_id = missed.id
order by missed.moment, missed.id
