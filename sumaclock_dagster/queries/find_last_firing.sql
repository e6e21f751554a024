-- Row-level security shows the current role's own firings.
select d.status, d.return_message
from cron.job_run_details d
where d.database = %(database)s and d.status in ('succeeded', 'failed')
order by d.runid desc
limit 1
