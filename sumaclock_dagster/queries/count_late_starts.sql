-- Firings that pg_cron began within the last minute and over half a minute after the minute they were due in.
select count(*)
from (select d.jobid, d.start_time from cron.job_run_details d order by d.runid desc limit 100) newest
join cron.job j on j.jobid = newest.jobid
where newest.start_time > now() - interval '1 minute' and extract(second from newest.start_time) >= 30
  and j.schedule !~* 'second' and j.schedule !~ '@'
