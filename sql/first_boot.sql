-- What only a superuser can make: roles, databases, pg_cron and the rights between them. A psql script, once per cluster
-- and app database, safe to run again:
--
--     psql -X -d postgres -f sql/first_boot.sql [-v app_db=sumaclock] [-v app_role=sumaclock_app] ...
--
-- Variables (psql -v name=value) and their defaults: owner_role=sumaclock_owner, app_role=sumaclock_app,
-- dagster_role=sumaclock_dagster, app_db=sumaclock, dagster_db=sumaclock_dagster (empty: Dagster's storage is elsewhere),
-- cron_db=<the server's cron.database_name>.
--
-- It sets no passwords: `\password sumaclock_app` afterwards keeps them out of files, logs and shell history.
-- On a cluster shared with others it takes no right away from them; what it narrows is said where it happens.

\set ON_ERROR_STOP on
do $$
begin
    if not (select rolsuper from pg_catalog.pg_roles where rolname = current_user) then
        raise exception 'first_boot.sql needs a superuser, and % is none.', current_user;
    end if;
end $$;

\if :{?owner_role}
\else
\set owner_role sumaclock_owner
\endif
\if :{?app_role}
\else
\set app_role sumaclock_app
\endif
\if :{?dagster_role}
\else
\set dagster_role sumaclock_dagster
\endif
\if :{?app_db}
\else
\set app_db sumaclock
\endif
\if :{?dagster_db}
\else
\set dagster_db sumaclock_dagster
\endif
\if :{?cron_db}
\else
select coalesce(current_setting('cron.database_name', true), 'postgres') as cron_db \gset
\endif

set client_min_messages = warning;
set search_path = pg_catalog;
-- A DO block sees no psql variables, so they travel as settings of this session.
select set_config('first_boot.owner_role', :'owner_role', false), set_config('first_boot.app_role', :'app_role', false),
       set_config('first_boot.app_db', :'app_db', false), set_config('first_boot.dagster_db', :'dagster_db', false),
       set_config('first_boot.cron_db', :'cron_db', false) as cron_db_set \gset

do $$
declare
    app text := current_setting('first_boot.app_role');
    owner text := current_setting('first_boot.owner_role');
    loaded_for text := current_setting('cron.database_name', true);
    too_strong text;
begin
    if loaded_for is null then
        raise exception 'pg_cron is not loaded on this server.'
            using hint = 'Install it, set shared_preload_libraries = ''pg_cron'' and cron.timezone = ''GMT'', and restart PostgreSQL.';
    end if;
    if loaded_for <> current_setting('first_boot.cron_db') then
        raise exception 'This server runs pg_cron in database "%", not in "%".', loaded_for, current_setting('first_boot.cron_db')
            using hint = 'Leave cron_db out, or change cron.database_name and restart PostgreSQL.';
    end if;
    if app = owner then
        raise exception 'owner_role and app_role are both "%": the app role must not own what it uses. Give two names.', app;
    end if;
    if current_setting('first_boot.dagster_db') in (current_setting('first_boot.app_db'), loaded_for) then
        raise exception 'dagster_db "%" is the app or cron database: Dagster needs a database of its own.',
            current_setting('first_boot.dagster_db');
    end if;
    -- A role that exists already may be somebody's all-powerful login. Every clock job would fire with its powers.
    select string_agg(quote_ident(role.rolname), ', ') into too_strong
    from pg_roles as app_role, pg_roles as role
    where app_role.rolname = app
      and pg_has_role(app_role.oid, role.oid, 'member')
      and (role.rolsuper or role.rolcreaterole or role.rolcreatedb or role.rolreplication or role.rolbypassrls
           or role.rolname in (owner, 'pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files',
                               'pg_read_all_data', 'pg_write_all_data'));
    if too_strong is not null then
        raise exception 'The app role "%" is too powerful: it is, or is a member of, %.', app, too_strong
            using hint = 'Choose another app_role (-v app_role=...), or take SUPERUSER, CREATEDB, CREATEROLE, REPLICATION, BYPASSRLS and such memberships from it.';
    end if;
end $$;

-- Roles. The owner role migrates, the app role works and fires (pg_cron logs in as it), Dagster's role has its storage.
select format('create role %I login', name)
from (values (:'owner_role'), (:'app_role'), (:'dagster_role')) as role (name)
where not exists (select from pg_roles where rolname = name) \gexec
select format('alter role %I login', rolname)
from pg_roles
where rolname in (:'owner_role', :'app_role', :'dagster_role') and not rolcanlogin \gexec

-- Databases. Only one that is made here is closed to PUBLIC: in one that was there already others may rely on that.
select not exists (select from pg_database where datname = :'app_db') as make_app_db,
       :'dagster_db' <> '' and not exists (select from pg_database where datname = :'dagster_db') as make_dagster_db,
       'dbname=''' || replace(replace(:'app_db', E'\\', E'\\\\'), '''', E'\\''') || '''' as to_app_db,
       'dbname=''' || replace(replace(:'cron_db', E'\\', E'\\\\'), '''', E'\\''') || '''' as to_cron_db \gset
\if :make_app_db
create database :"app_db" template template0 encoding 'UTF8';
revoke all on database :"app_db" from public;
\endif
\if :make_dagster_db
create database :"dagster_db" owner :"dagster_role" template template0 encoding 'UTF8';
revoke all on database :"dagster_db" from public;
\endif
grant connect on database :"app_db" to :"owner_role", :"app_role";
-- Migrations read from here whom to grant row rights; the name differs from cluster to cluster.
alter database :"app_db" set sumaclock.app_role = :'app_role';

\connect -reuse-previous=on :"to_app_db"
set client_min_messages = warning;
set search_path = pg_catalog;
select set_config('first_boot.owner_role', :'owner_role', false) as owner_role_set \gset

do $$
declare
    owner text := current_setting('first_boot.owner_role');
    found text := (select pg_get_userbyid(nspowner) from pg_namespace where nspname = 'sumaclock');
begin
    if found <> owner then
        raise exception 'Schema sumaclock in database "%" belongs to "%", not to "%".', current_database(), found, owner
            using hint = 'Name its owner (-v owner_role=...), or choose another app_db.';
    end if;
end $$;

\if :make_app_db
-- Before PostgreSQL 15, PUBLIC may create objects here.
revoke create on schema public from public;
\endif
create schema if not exists sumaclock authorization :"owner_role";
grant usage on schema sumaclock to :"app_role";

-- Settings of pg_cron are for superusers and pg_read_all_settings only; that role would show the app much more.
create or replace function sumaclock.clock_settings() returns table (name text, value text)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select s.name, s.setting from pg_catalog.pg_settings as s where s.name ~ '^cron[.]' order by s.name $$;
select format('alter function sumaclock.clock_settings() owner to %I', current_user) \gexec
comment on function sumaclock.clock_settings() is 'The settings of pg_cron, for roles that may not see all settings.';
revoke all on function sumaclock.clock_settings() from public;
grant execute on function sumaclock.clock_settings() to :"owner_role", :"app_role";

-- Who holds back vacuum: other roles' transactions are hidden from the app role, and pg_read_all_stats would show it
-- their statements as well. A session without snapshot and transaction number holds nothing back, however long it idles.
create or replace function sumaclock.oldest_transaction() returns table (seconds double precision, who text)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
    select extract(epoch from clock_timestamp() - held.since)::double precision, held.who
    from (
        select a.xact_start as since,
               format('process %s, role %s, database %s', a.pid, coalesce(a.usename::text, '-'), coalesce(a.datname::text, '-')) as who
        from pg_catalog.pg_stat_activity as a
        where (a.backend_xmin is not null or a.backend_xid is not null)
          and a.pid <> pg_backend_pid() and a.backend_type <> 'autovacuum worker'
        union all
        select p.prepared, format('prepared transaction %s, role %s, database %s', p.gid, p.owner, p.database)
        from pg_catalog.pg_prepared_xacts as p
    ) as held
    where held.since is not null
    order by held.since
    limit 1
$$;
select format('alter function sumaclock.oldest_transaction() owner to %I', current_user) \gexec
comment on function sumaclock.oldest_transaction() is 'The transaction that holds back vacuum most: its age in seconds, and whose it is.';
revoke all on function sumaclock.oldest_transaction() from public;
grant execute on function sumaclock.oldest_transaction() to :"owner_role", :"app_role";

\connect -reuse-previous=on :"to_cron_db"
set client_min_messages = warning;
set search_path = pg_catalog;
select set_config('first_boot.app_role', :'app_role', false) as app_role_set \gset

create extension if not exists pg_cron;

-- pg_cron lets PUBLIC schedule into the cron database; only the schema's USAGE holds people off. The app role needs that
-- USAGE, but nothing in the cron database. So the right moves from PUBLIC to each neighbour who can use it today, by
-- name (their members inherit it), and then leaves PUBLIC. App roles of other deployments are no neighbours in this.
do $$
declare
    app text := current_setting('first_boot.app_role');
    neighbours text;
    open_function regprocedure;
begin
    if exists (select from pg_namespace, aclexplode(nspacl) as acl
               where nspname = 'cron' and acl.grantee = 0 and acl.privilege_type = 'USAGE') then
        raise warning 'PUBLIC has USAGE on schema cron, so every role may schedule into database "%", the app role too.', current_database()
            using hint = 'When nobody needs that: revoke usage on schema cron from public, and run first_boot.sql again.';
        return;
    end if;
    select string_agg(distinct quote_ident(grantee.rolname), ', ') into neighbours
    from pg_namespace as schema, aclexplode(schema.nspacl) as acl, pg_roles as grantee
    where schema.nspname = 'cron' and acl.privilege_type = 'USAGE' and grantee.oid = acl.grantee
      and grantee.rolname <> app
      and not exists (select from pg_db_role_setting as setting
                      where setting.setrole = 0 and 'sumaclock.app_role=' || grantee.rolname = any (setting.setconfig));
    for open_function in
        select function.oid
        from pg_proc as function, aclexplode(coalesce(function.proacl, acldefault('f', function.proowner))) as acl
        where function.pronamespace = 'cron'::regnamespace and function.prorettype <> 'trigger'::regtype
          and function.proname <> 'unschedule' and acl.grantee = 0 and acl.privilege_type = 'EXECUTE'
    loop
        if neighbours is not null then
            execute format('grant execute on function %s to %s', open_function, neighbours);
        end if;
        execute format('revoke execute on function %s from public', open_function);
    end loop;
end $$;

grant connect on database :"cron_db" to :"app_role";
grant usage on schema cron to :"app_role";
grant execute on function cron.schedule_in_database(text, text, text, text, text, boolean) to :"app_role";
grant execute on function cron.unschedule(bigint) to :"app_role";
-- Its argument is of type name up to pg_cron 1.4, and text from 1.5.
select format('grant execute on function %s to %I', oid::regprocedure, :'app_role')
from pg_proc
where pronamespace = 'cron'::regnamespace and proname = 'unschedule' and proargtypes[0] <> 'bigint'::regtype \gexec
-- Row-level security shows each role its own rows of both tables.
grant select on cron.job, cron.job_run_details to :"app_role";
grant delete on cron.job_run_details to :"app_role";

-- System clock jobs: pg_cron's care for itself, as the app role, one of each for each app database. The canary touches
-- cron.job each minute, so that a change which the launcher missed is noticed with it; and the log of the role's firings,
-- which nothing else would ever end, is kept for 7 days. `sumaclock drift --fix` keeps them. A longer name of the app
-- database leaves no room for names of clock jobs, and is refused by all of sumaclock.
select count(cron.schedule_in_database(:'app_db' || ':system:' || job.what, job.schedule, job.command, current_database()::text, :'app_role')) as system_jobs
from (values ('canary', '* * * * *', $command$set lock_timeout = '10s'; select pg_catalog.pg_advisory_xact_lock_shared(1937075553, 1); select cron.schedule_in_database(own.name, own.schedule, own.command, own.database) from (select jobname::text as name, schedule, command, database::text as database from cron.job where username = current_user and pg_catalog.right(jobname::text, 14) = ':system:canary' order by jobid limit 1) as own;$command$),
             ('prune_log', '3-53/10 * * * *', $command$with oldest as (select runid, status, start_time, end_time from cron.job_run_details where username = current_user order by runid limit 100000) delete from cron.job_run_details as d using oldest as o where d.runid = o.runid and o.status in ('succeeded', 'failed') and coalesce(o.end_time, o.start_time, '-infinity') < now() - interval '7 days' and o.runid <= (select max(runid) from oldest where start_time < now() - interval '7 days');$command$)) as job (what, schedule, command)
where octet_length(:'app_db') <= 21 \gset
