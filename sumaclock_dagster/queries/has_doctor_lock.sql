select exists (
    select from pg_catalog.pg_locks
    where locktype = 'advisory' and classid = 1685023604 and objid = pg_catalog.pg_backend_pid()::oid
      and pid = pg_catalog.pg_backend_pid() and granted
)
