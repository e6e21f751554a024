-- A lock on the id, not the row: it also orders a deletion against a creation under the same id.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('sumaclock job ' || %(job_id)s::text, 0))
