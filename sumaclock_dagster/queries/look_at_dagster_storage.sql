select current_database()::text,
       current_user::text,
       coalesce(pg_catalog.has_schema_privilege(current_schema(), 'CREATE'), false),
       coalesce(pg_catalog.has_table_privilege(pg_catalog.to_regclass('runs'), 'INSERT'), false)
