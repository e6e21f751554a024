select status::text, count(*) as tasks from sumaclock.ai_tasks where deleted_at is null group by status
