-- The active tasks that fire next, with the occurrences that they were placed with.
select id as task_id, title, kind, organization_id, user_id, cron, instant, timezone, next_run_at, upcoming,
       case when kind = 'dagster' then payload end as target
from sumaclock.ai_tasks
where status = 'active' and next_run_at is not null
order by next_run_at, id
limit %(limit)s
