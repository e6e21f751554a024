-- Of these clock jobs, those that are as they should be and that pg_cron has not begun since their due minute. One without
-- a time failed before it started, and is as old as its neighbours. A row that was written after something that ended
-- after the due minute was not there in that minute: transaction numbers tell, since cron.job has no times.
with due as (
    select c.jobid, c.xmin, wanted.moment
    from unnest(%(names)s::text[], %(schedules)s::text[], %(moments)s::timestamptz[]) as wanted (name, schedule, moment)
    join cron.job c on c.jobname = wanted.name
    where c.username = current_user and c.database = %(database)s and c.active and c.schedule = wanted.schedule
      and (%(background)s or (c.nodename = %(host)s and c.nodeport = pg_catalog.current_setting('port')::integer))
), recent as materialized (
    select d.jobid, d.xmin, d.start_time, d.end_time
    from cron.job_run_details d
    where d.runid > coalesce((
        select o.runid from cron.job_run_details o
        where o.start_time < (select min(moment) from due)
        order by o.runid desc
        limit 1
    ), 0)
)
select due.jobid, due.moment
from due
where not exists (select from recent r where r.jobid = due.jobid and (r.start_time is null or r.start_time >= due.moment))
  and not exists (select from recent r
                  where r.end_time >= due.moment and pg_catalog.age(r.xmin) > pg_catalog.age(due.xmin))
order by due.moment, due.jobid
