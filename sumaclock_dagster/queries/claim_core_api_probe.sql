-- Least tried first, so that none that core-api can't take decides for all whether core-api is back.
with picked as materialized (
    select id
    from sumaclock.core_api_jobs
    where status in ('pending', 'sending') and next_attempt_at <= statement_timestamp()
    order by attempts, next_attempt_at, id
    limit %(room)s
    for update skip locked
)
update sumaclock.core_api_jobs as job
set status = 'sending', attempts = job.attempts + 1, next_attempt_at = statement_timestamp() + %(lease)s * interval '1 second'
from picked
where job.id = picked.id
returning job.id, job.attempts, job.idempotency_key, job.method, job.path, job.body::text,
          extract(epoch from statement_timestamp() - job.created_at)::float8, extract(epoch from statement_timestamp())::float8
