insert into sumaclock.cron_runs (job_id) values ('{job_id}'); notify cron_runs;
