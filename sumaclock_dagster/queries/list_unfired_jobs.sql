-- Jobs whose last due minute brought no firing of the clock, the first two hundred. `moments`: the last due minute of each
-- of `schedules`. A task's clock job is known by its minute alone, which the caller writes as a schedule.
select j.id as job_id, j.schedule, due.moment as due_at
from unnest(%(schedules)s::text[], %(moments)s::timestamptz[]) as due (schedule, moment)
join sumaclock.cron_jobs j on j.schedule = due.schedule
where j.enabled and j.updated_at < due.moment
  and not exists (select from sumaclock.ai_tasks t where t.cron_job_id = j.id)
  and not exists (select from sumaclock.cron_runs r
                  where r.job_id = j.id and r.scheduled_at >= due.moment and r.trigger = 'clock')
union all
select t.cron_job_id, null, t.next_run_at
from sumaclock.ai_tasks t
where t.status = 'active' and t.deleted_at is null and t.updated_at < t.next_run_at
  and t.next_run_at between %(since)s and %(due_before)s
  and not exists (select from sumaclock.cron_runs r
                  where r.job_id = t.cron_job_id and r.scheduled_at >= t.next_run_at and r.trigger = 'clock')
limit 200
