-- The schedules of the active tasks that fire within the next so many days; those that fire first come first.
select cron, instant, timezone, count(*) as tasks, min(next_run_at) as next_run_at
from sumaclock.ai_tasks
where status = 'active' and next_run_at < now() + make_interval(days => %(days)s)
group by cron, instant, timezone
order by min(next_run_at), cron, timezone
limit %(limit)s
