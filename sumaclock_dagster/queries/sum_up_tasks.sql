-- Changes whenever a task is made or changed, or a task run is recorded or ends.
select (select count(*) from sumaclock.ai_tasks) as tasks,
       coalesce((select max(updated_at) from sumaclock.ai_tasks), 'epoch')::text
           || coalesce((select ' and ' || count(*) || ' running' from sumaclock.ai_task_runs where finished_at is null having count(*) > 0), '') as changed,
       coalesce((select max(id) from sumaclock.ai_task_runs), 0) as newest_run,
       extract(epoch from now())::float8 as seen_at
