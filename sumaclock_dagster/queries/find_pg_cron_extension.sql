select extversion from pg_catalog.pg_extension where extname = 'pg_cron'
