-- As list_named_clock_jobs.sql, of these names alone, found by pg_cron's own index.
select c.jobid, right(c.jobname::text, 36)::uuid as job_id, c.schedule, c.command, c.active, c.database::text as database,
       c.username::text as username, c.nodename::text as host, c.nodeport as port,
       exists (select from pg_catalog.pg_database d where d.datname = c.database) as database_exists
from cron.job c
where c.jobname = any (%(names)s::text[])
order by c.jobid
