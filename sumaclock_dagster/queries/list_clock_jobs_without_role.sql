-- Only a superuser sees rows of others. A role is found by name alone, as pg_cron finds it.
select c.username::text, array_agg(c.jobid order by c.jobid)
from cron.job c
where not exists (select from pg_catalog.pg_roles r where r.rolname = c.username)
group by c.username
order by c.username
