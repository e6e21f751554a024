-- What the app database's server says of itself. Visible to every role, and there before any migration.
select pg_catalog.current_database()::text as database, current_user::text as role,
       pg_catalog.clock_timestamp() as seen_at, pg_catalog.pg_postmaster_start_time() as server_started_at,
       pg_catalog.pg_is_in_recovery() as is_standby,
       coalesce(pg_catalog.current_setting('sumaclock.app_role', true), '') as first_boot_role,
       pg_catalog.current_setting('max_worker_processes')::integer as worker_slots
