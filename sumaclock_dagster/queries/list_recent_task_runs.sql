-- The task runs that a Dagster run executes now, and the newest of the last so many days, with their tasks. The first line of an error says what happened.
select r.id as task_run_id,
       t.title,
       t.kind,
       t.organization_id,
       t.user_id,
       t.timezone,
       r.scheduled_for,
       r.trigger::text,
       r.status::text,
       extract(epoch from r.started_at - r.scheduled_for)::float8 as lateness,
       left(split_part(coalesce(r.error, ''), E'\n', 1), 300) as error,
       t.id as task_id,
       c.dagster_run_id
from sumaclock.ai_task_runs r
join sumaclock.ai_tasks t on t.id = r.task_id
left join sumaclock.cron_runs c on c.id = r.cron_run_id
where r.finished_at >= now() - make_interval(days => %(days)s) or r.finished_at is null
order by r.finished_at desc nulls first, r.id desc
limit %(limit)s
