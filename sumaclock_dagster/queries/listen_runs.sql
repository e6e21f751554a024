listen cron_runs
