-- Slots that nobody holds by hold_slots.sql, and that nobody can hold until the commit.
select wanted.id
from unnest(%(ids)s::uuid[]) as wanted (id)
where pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended('sumaclock slot ' || wanted.id::text, 0))
