-- Every clock job that has a name of ours and is visible to this role, whichever database and role it stands for. Others'
-- are here to be told apart, never to be changed.
select c.jobid, right(c.jobname::text, 36)::uuid as job_id, c.schedule, c.command, c.active, c.database::text as database,
       c.username::text as username, c.nodename::text as host, c.nodeport as port,
       exists (select from pg_catalog.pg_database d where d.datname = c.database) as database_exists
from cron.job c
where left(c.jobname::text, -36) = %(prefix)s
  and right(c.jobname::text, 36) ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
order by c.jobid
