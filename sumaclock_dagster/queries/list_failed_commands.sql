select jobid, queued_by::text as queued_by, command, attempts, max_attempts, queued_at, started_at, failed_at, sqlstate, message, detail, hint,
       context, dedup_key, note
from sumaclock.job_errors
order by failed_at desc, jobid desc
limit %(limit)s
