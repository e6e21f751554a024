-- The other side of the lock in touch_clock_jobs.sql: what that reads is not removed or changed before it is written.
select pg_catalog.pg_advisory_xact_lock(1937075553, 1)
