-- How many firings pg_cron is executing, over all roles where it logs in like everybody (its sessions have this name), and
-- of the current role where it uses background workers.
select case when %(background)s then (
    select count(*)
    from (select d.status from cron.job_run_details d order by d.runid desc limit 1000) newest
    where newest.status in ('starting', 'connecting', 'sending', 'running')
) else (
    select count(*) from pg_catalog.pg_stat_activity a where a.application_name = 'pg_cron'
) end
