-- The locks of lock_job.sql, as far as nobody holds them: who waits for nobody while it holds locks can't be part of a
-- deadlock with people who change several jobs in one transaction.
select wanted.id
from unnest(%(ids)s::uuid[]) as wanted (id)
where pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended('sumaclock job ' || wanted.id::text, 0))
