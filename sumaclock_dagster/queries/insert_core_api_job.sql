insert into sumaclock.core_api_jobs (idempotency_key, organization_id, user_id, method, path, body)
values (%(idempotency_key)s, %(organization_id)s, %(user_id)s, %(method)s, %(path)s, %(body)s::jsonb)
on conflict (idempotency_key) do nothing
returning id
