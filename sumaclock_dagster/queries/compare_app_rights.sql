-- Rights in the app database that the current role lacks (needed) or has beyond its need (not needed), each with the
-- statement that mends it. The migrations ledger is the owner's, and the queue of
-- one-off commands changes by functions only: the app role reads them.
with owner as (
    select case when nspowner = (select oid from pg_catalog.pg_roles where rolname = current_user) then 'sumaclock_owner'
                else pg_catalog.pg_get_userbyid(nspowner)::text end as name
    from pg_catalog.pg_namespace where nspname = 'sumaclock'
), relation as (
    select c.oid, c.relowner, pg_catalog.format('sumaclock.%I', c.relname) as name, c.relkind,
           case when c.relname in ('migrations', 'job_queue', 'job_errors', 'job_runners') or c.relkind in ('v', 'm') then array['SELECT']
                else array['SELECT', 'INSERT', 'UPDATE', 'DELETE'] end as needed
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'sumaclock' and c.relkind in ('r', 'p', 'v', 'm')
), compared as (
    select p.privilege = any (relation.needed) as needed,
           pg_catalog.has_table_privilege(relation.oid, p.privilege) as granted,
           p.privilege, relation.name
    from relation
    cross join unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']
        || case when pg_catalog.current_setting('server_version_num')::integer >= 170000 then array['MAINTAIN'] else '{}' end) as p (privilege)
    where relation.relowner <> (select oid from pg_catalog.pg_roles where rolname = current_user)
)
select pg_catalog.format('%s on %s', pg_catalog.string_agg(privilege, ', '), name),
       case when needed then pg_catalog.format('grant %s on %s to %I;', pg_catalog.string_agg(pg_catalog.lower(privilege), ', '), name, current_user)
            else pg_catalog.format('revoke %s on %s from public, %I;', pg_catalog.string_agg(pg_catalog.lower(privilege), ', '), name, current_user) end,
       needed
from compared
where needed <> granted
group by name, needed
union all
select 'USAGE on schema sumaclock', pg_catalog.format('grant usage on schema sumaclock to %I;', current_user), true
where not pg_catalog.has_schema_privilege('sumaclock', 'USAGE')
union all
select 'CREATE on schema sumaclock', pg_catalog.format('revoke create on schema sumaclock from public, %I;', current_user), false
from pg_catalog.pg_namespace
where nspname = 'sumaclock' and pg_catalog.has_schema_privilege('sumaclock', 'CREATE')
  and nspowner <> (select oid from pg_catalog.pg_roles where rolname = current_user)
union all
select 'CREATE on the database', pg_catalog.format('revoke create on database %I from public, %I;', pg_catalog.current_database(), current_user), false
from pg_catalog.pg_database
where datname = pg_catalog.current_database() and pg_catalog.has_database_privilege(datname, 'CREATE')
  and datdba <> (select oid from pg_catalog.pg_roles where rolname = current_user)
union all
select pg_catalog.format('ownership of %s', owned.name), owned.statement, false
from (
    -- A new owner takes the rights of the old one with it, so they are given back.
    select relation.name, relation.relowner as owner,
           pg_catalog.format('alter table %s owner to %I; grant %s on %s to %I;', relation.name, owner.name,
                             pg_catalog.lower(pg_catalog.array_to_string(relation.needed, ', ')), relation.name, current_user) as statement
    from relation, owner
    union all
    select 'schema sumaclock', nspowner,
           pg_catalog.format('alter schema sumaclock owner to %I; grant usage on schema sumaclock to %I;', owner.name, current_user)
    from pg_catalog.pg_namespace, owner where nspname = 'sumaclock'
    union all
    select 'the database', datdba, pg_catalog.format('alter database %I owner to %I;', datname, (select rolname from pg_catalog.pg_roles where oid = 10))
    from pg_catalog.pg_database where datname = pg_catalog.current_database()
) as owned
where owned.owner = (select oid from pg_catalog.pg_roles where rolname = current_user)
order by 3 desc, 1
