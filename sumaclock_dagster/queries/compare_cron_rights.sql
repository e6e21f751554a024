-- Rights in the cron database that the current role lacks (needed) or has beyond its need (not needed), each with the
-- statement that mends it. Without USAGE on the schema none of the others counts, and they are not looked at.
-- The argument of unschedule by name is of type name up to pg_cron 1.4, and text from 1.5.
with functions as (
    select p.oid, p.oid::regprocedure::text as name,
           p.proname = 'unschedule' or (p.proname = 'schedule_in_database' and p.pronargs = 6) as needed
    from pg_catalog.pg_proc p
    join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname = 'cron' and p.prorettype <> 'trigger'::regtype
), tables as (
    select c.oid, pg_catalog.format('cron.%I', c.relname) as name,
           case c.relname when 'job' then array['SELECT'] when 'job_run_details' then array['SELECT', 'DELETE']
                else array[]::text[] end as needed
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'cron' and c.relkind = 'r'
), compared as (
    select 'EXECUTE' as privilege, 'function ' || name as name, needed,
           pg_catalog.has_function_privilege(oid, 'EXECUTE') as granted
    from functions
    union all
    select p.privilege, tables.name, p.privilege = any (tables.needed), pg_catalog.has_table_privilege(tables.oid, p.privilege)
    from tables
    cross join unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']
        || case when pg_catalog.current_setting('server_version_num')::integer >= 170000 then array['MAINTAIN'] else '{}' end) as p (privilege)
)
select pg_catalog.format('%s on %s', pg_catalog.string_agg(privilege, ', '), name),
       case when needed then pg_catalog.format('grant %s on %s to %I;', pg_catalog.string_agg(pg_catalog.lower(privilege), ', '), name, current_user)
            else pg_catalog.format('revoke %s on %s from public, %I;', pg_catalog.string_agg(pg_catalog.lower(privilege), ', '), name, current_user) end,
       needed
from compared
where needed <> granted and pg_catalog.has_schema_privilege('cron', 'USAGE')
group by name, needed
union all
select 'USAGE on schema cron', pg_catalog.format('grant usage on schema cron to %I;', current_user), true
where not pg_catalog.has_schema_privilege('cron', 'USAGE')
union all
select 'CREATE on schema cron', pg_catalog.format('revoke create on schema cron from public, %I;', current_user), false
where pg_catalog.has_schema_privilege('cron', 'CREATE')
union all
select 'CREATE on the database', pg_catalog.format('revoke create on database %I from public, %I;', pg_catalog.current_database(), current_user), false
where pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
order by 3 desc, 1
