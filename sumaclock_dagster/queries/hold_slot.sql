-- Who lets a job fire by a slot keeps the slot until the commit; who takes slots away, with try_lock_slots.sql, takes none that somebody holds.
select pg_catalog.pg_advisory_xact_lock_shared(pg_catalog.hashtextextended('sumaclock slot ' || %(id)s::text, 0))
