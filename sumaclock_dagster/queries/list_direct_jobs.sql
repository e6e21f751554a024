-- Direct commands that have a clock job still, and what pg_cron noted of those that ended.
select substring(command from '^/\* sumaclock (\S+) \*/') as name, substring(command from '^/\* sumaclock \S+ \*/\n(.*)$') as command,
       status, return_message as message, start_time as started_at, end_time as ended_at
from cron.job_run_details
where username = current_user and database = %(database)s
  and left(command, length(%(marker)s)) = %(marker)s
union all
select jobname::text, substring(command from '^/\* sumaclock \S+ \*/\n(.*)$'), 'waiting', null, null, null
from cron.job j
where username = current_user and database = %(database)s and left(command, length(%(marker)s)) = %(marker)s
  and not exists (select from cron.job_run_details d where d.jobid = j.jobid)
order by started_at desc nulls first, name
limit %(limit)s
