select exists (select from pg_catalog.pg_available_extensions where name = 'pg_cron')
