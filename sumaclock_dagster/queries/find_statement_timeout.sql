-- What a session of the role in this database begins with, where that is any limit at all.
with limits as (
    select substring(entry from '^statement_timeout=(.*)$') as value, (s.setrole <> 0)::integer * 2 + (s.setdatabase <> 0)::integer as rank
    from pg_catalog.pg_db_role_setting s, unnest(s.setconfig) as entry
    where entry like 'statement\_timeout=%%'
      and s.setdatabase in (0, (select d.oid from pg_catalog.pg_database d where d.datname = current_database()))
      and s.setrole in (0, (select r.oid from pg_catalog.pg_roles r where r.rolname = coalesce(%(role)s, session_user)))
    union all
    -- Of the server's configuration, unless this session's URL says otherwise.
    select g.reset_val, -1 from pg_catalog.pg_settings g where g.name = 'statement_timeout' and g.source = 'configuration file'
)
select value from (select value from limits order by rank desc limit 1) as first where value !~ '^0\s*[a-z]*$'
