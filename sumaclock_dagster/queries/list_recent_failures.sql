-- The newest runs that failed within the last so many hours. An error's first line says what happened; its
-- traceback stays in the row. Most runs end soon after their minute, and the index knows the minute; a week is room for
-- retries and a backlog.
select r.id as run_id,
       j.kind,
       j.organization_id,
       j.user_id,
       r.attempts,
       r.scheduled_at,
       r.finished_at,
       left(split_part(r.error, E'\n', 1), 300) as error,
       r.dagster_run_id
from sumaclock.cron_runs r
join sumaclock.cron_jobs j on j.id = r.job_id
where r.status = 'failed'
  and r.finished_at >= now() - make_interval(hours => %(hours)s)
  and r.scheduled_at >= now() - make_interval(hours => %(hours)s, days => 7)
order by r.finished_at desc, r.id desc
limit %(limit)s;
