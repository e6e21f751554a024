-- Who lets jobs fire by slots keeps the slots until the commit; who takes slots away, with try_lock_slots.sql, takes none that somebody holds.
select pg_catalog.pg_advisory_xact_lock_shared(pg_catalog.hashtextextended('sumaclock slot ' || wanted.id::text, 0))
from unnest(%(ids)s::uuid[]) as wanted (id)
