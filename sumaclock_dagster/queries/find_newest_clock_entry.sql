-- When pg_cron last started something of the current role's, in the order in which it started them.
select d.start_time
from cron.job_run_details d
where d.start_time is not null
order by d.runid desc
limit 1
