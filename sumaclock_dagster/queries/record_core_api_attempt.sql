update sumaclock.core_api_jobs
set status = %(status)s::sumaclock.core_api_status, last_status = %(http_status)s, last_error = %(error)s, response = %(response)s,
    next_attempt_at = statement_timestamp() + %(delay)s * interval '1 second',
    finished_at = case when %(status)s::text <> 'pending' then statement_timestamp() end
where id = %(id)s and attempts = %(attempt)s and status = 'sending'
returning id
