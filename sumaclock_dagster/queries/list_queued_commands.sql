select jobid, queued_by::text as queued_by, state, command, priority, attempts, max_attempts, queued_at, due_at, started_at,
       timeout, dedup_key, note, sqlstate, message
from sumaclock.job_queue_status
order by started_at nulls last, priority desc, due_at, jobid
limit %(limit)s
