-- What the current role may do to the whole cluster or to the schema's owner, by itself or as a member of another role;
-- and the statement that ends it. What a superuser is a member of says nothing: a superuser is a member of all.
with me as (
    select * from pg_catalog.pg_roles where rolname = current_user
), powers as (
    select r.oid, r.rolname, p.power, p.keyword
    from pg_catalog.pg_roles r
    cross join lateral (values
        ('is a superuser', 'nosuperuser', r.rolsuper),
        ('may create databases', 'nocreatedb', r.rolcreatedb),
        ('may create roles', 'nocreaterole', r.rolcreaterole),
        ('may replicate', 'noreplication', r.rolreplication),
        ('bypasses row security', 'nobypassrls', r.rolbypassrls)
    ) as p (power, keyword, has)
    where p.has
), strong as (
    select rolname from powers
    union
    select rolname from pg_catalog.pg_roles
    where rolname in ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files',
                      'pg_read_all_data', 'pg_write_all_data', 'pg_signal_backend')
    union
    select pg_catalog.pg_get_userbyid(nspowner) from pg_catalog.pg_namespace where nspname = 'sumaclock'
)
select powers.power, pg_catalog.format('alter role %I %s;', me.rolname, powers.keyword)
from me join powers on powers.oid = me.oid
union all
select pg_catalog.format('is a member of role %s', strong.rolname),
       pg_catalog.format('revoke %I from %I;', strong.rolname, me.rolname)
from me, strong
where not me.rolsuper and strong.rolname <> me.rolname and pg_catalog.pg_has_role(me.oid, strong.rolname, 'MEMBER')
