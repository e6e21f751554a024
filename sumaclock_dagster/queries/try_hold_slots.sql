-- The locks of hold_slots.sql, as far as nobody is taking the slot away.
select wanted.id
from unnest(%(ids)s::uuid[]) as wanted (id)
where pg_catalog.pg_try_advisory_xact_lock_shared(pg_catalog.hashtextextended('sumaclock slot ' || wanted.id::text, 0))
