select queued_by::text as queued_by, due, oldest_due_at, waiting, running, runners, looked_at, failed_lately, now() as seen_at
from sumaclock.job_queue_by_role()
