select pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended('sumaclock system job ' || %(name)s::text, 0))
