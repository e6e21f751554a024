-- A statement of its own: what is read after it is as the lock's former holders left it.
select from sumaclock.ai_tasks where cron_job_id = %(job)s for update
