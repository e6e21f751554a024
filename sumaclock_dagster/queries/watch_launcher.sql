-- The launcher, and what each of its starts leaves behind: it reads cron.job, and one that crashes rolls back.
select (select a.pid from pg_catalog.pg_stat_activity a where a.application_name = 'pg_cron scheduler' limit 1) as pid,
       coalesce((select coalesce(t.seq_scan, 0) + coalesce(t.idx_scan, 0)
                 from pg_catalog.pg_stat_all_tables t where t.schemaname = 'cron' and t.relname = 'job'), 0) as reads,
       coalesce((select d.xact_rollback from pg_catalog.pg_stat_database d
                 where d.datname = pg_catalog.current_database()), 0) as rollbacks
