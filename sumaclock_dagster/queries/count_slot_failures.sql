-- Firings of the last ten minutes that found no background worker. They have no time: each is as old as its neighbours.
select count(*)
from cron.job_run_details d
where d.status = 'failed' and d.return_message like 'could not start background process%'
  and d.runid > coalesce((
      select o.runid from cron.job_run_details o
      where o.start_time < now() - interval '10 minutes'
      order by o.runid desc
      limit 1
  ), 0)
