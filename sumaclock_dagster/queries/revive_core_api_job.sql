update sumaclock.core_api_jobs
set status = 'pending', next_attempt_at = now(), created_at = now(), finished_at = null
where idempotency_key = %(idempotency_key)s and status = 'failed'
returning id
