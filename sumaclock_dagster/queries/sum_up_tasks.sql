-- Changes whenever a task is made or changed, or a task run is recorded.
select (select count(*) from sumaclock.ai_tasks) as tasks,
       coalesce((select max(updated_at) from sumaclock.ai_tasks), 'epoch')::text as changed,
       coalesce((select max(id) from sumaclock.ai_task_runs), 0) as newest_run,
       extract(epoch from now())::float8 as seen_at
