delete from sumaclock.cron_jobs
where id = %(job_id)s
returning id, kind, organization_id, user_id, payload, schedule, enabled, catch_up, overlap, created_at, updated_at
