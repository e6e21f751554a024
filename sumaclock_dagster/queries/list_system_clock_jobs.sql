-- Clock jobs, visible to this role, that are named like system clock jobs of the database. What follows the prefix holds no colon: with one,
-- it is the name of a clock job of a database that is itself called `<database>:system:...`.
select c.jobid, pg_catalog.substr(c.jobname::text, pg_catalog.length(%(prefix)s) + 1) as what, c.schedule, c.command, c.active,
       c.database::text as database, c.nodename::text as host, c.nodeport as port,
       c.username::text as username, c.username = current_user as is_own,
       c.database = pg_catalog.current_database() as is_in_cron_database,
       exists (select from pg_catalog.pg_database d where d.datname = c.database) as database_exists
from cron.job c
where pg_catalog.left(c.jobname::text, pg_catalog.length(%(prefix)s)) = %(prefix)s
  and pg_catalog.strpos(pg_catalog.substr(c.jobname::text, pg_catalog.length(%(prefix)s) + 1), ':') = 0
order by c.jobid
