"""The clock: jobs and their clock jobs in pg_cron. Nothing else in the package writes to `cron_jobs` or `cron.job`."""
