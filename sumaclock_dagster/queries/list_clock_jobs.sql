-- Both the name and the database must be ours: a neighbour may choose either as it likes.
select jobid, right(jobname::text, 36)::uuid as job_id, schedule, command, active
from cron.job
where username = current_user
  and database = %(database)s
  and left(jobname::text, -36) = %(prefix)s
  and right(jobname::text, 36) ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
order by jobid
