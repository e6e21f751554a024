select count(*) from cron.job
