listen cron_runs;
listen sumaclock_workers;
