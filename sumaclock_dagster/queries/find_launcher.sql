-- The name is visible to every role; backend_type, which says the same, is not.
select pid from pg_catalog.pg_stat_activity where application_name = 'pg_cron scheduler'
