select count(*)
from unnest(%(schedules)s::text[], %(moments)s::timestamptz[]) as due (schedule, moment)
join sumaclock.cron_jobs j on j.schedule = due.schedule
where j.enabled and j.updated_at < due.moment
  and not exists (select from sumaclock.ai_tasks t where t.cron_job_id = j.id)
  and not exists (select from sumaclock.cron_runs r
                  where r.job_id = j.id and r.scheduled_at >= due.moment and r.trigger in ('clock', 'catch_up'))
  and not (j.overlap = 'skip' and exists (
      select
      from (select r.scheduled_at, r.finished_at from sumaclock.cron_runs r where r.job_id = j.id
            order by r.scheduled_at desc limit 10) newest
      where newest.finished_at is null or (newest.scheduled_at < due.moment and newest.finished_at >= due.moment)))
