select coalesce(pg_catalog.has_function_privilege(pg_catalog.to_regprocedure('sumaclock.clock_settings()'), 'EXECUTE')
                and pg_catalog.has_schema_privilege(pg_catalog.to_regnamespace('sumaclock'), 'USAGE'), false)
