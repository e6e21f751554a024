select status::text, count(*) from sumaclock.cron_runs where job_id = %(job_id)s group by status
