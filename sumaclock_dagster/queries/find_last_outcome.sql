-- How the last firing into this database ended. Those of rows that lead to another server say nothing of this one.
select d.status, coalesce(d.return_message, ''), coalesce(d.end_time, d.start_time)
from cron.job_run_details d
where d.database = %(database)s and d.status in ('succeeded', 'failed')
  and (%(background)s or not exists (
      select from cron.job j
      where j.jobid = d.jobid
        and (j.nodename <> %(host)s or j.nodeport <> pg_catalog.current_setting('port')::integer)))
order by d.runid desc
limit 1
