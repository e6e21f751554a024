select jobid, schedule, command, database, active
from cron.job
where jobname = %(name)s and username = current_user
