select pg_catalog.pg_advisory_unlock(1685023604, pg_catalog.pg_backend_pid())
