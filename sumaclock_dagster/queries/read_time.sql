select pg_catalog.now()
