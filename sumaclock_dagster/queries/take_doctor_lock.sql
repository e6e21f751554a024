-- Keyed by the backend, so that two doctors at once do not meet. 1685023604 is "dokt" in ASCII.
select pg_catalog.pg_try_advisory_lock(1685023604, pg_catalog.pg_backend_pid())
