-- The clock jobs of one role whose names begin like those of one database: its runners, or its direct commands.
select jobid, jobname::text as name, schedule, command, database::text as database, active
from cron.job
where username = coalesce(%(role)s, current_user::text) and left(jobname::text, length(%(prefix)s)) = %(prefix)s
order by jobid
