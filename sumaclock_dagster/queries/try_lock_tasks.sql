-- Those that nobody has locked. The order is everybody's who locks several; what is read in a next statement is as the
-- locks' former holders left it.
select t.cron_job_id
from sumaclock.ai_tasks t
where t.cron_job_id = any (%(jobs)s::uuid[])
order by t.id
for update skip locked
