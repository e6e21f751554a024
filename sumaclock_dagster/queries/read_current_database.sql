select pg_catalog.current_database()::text
