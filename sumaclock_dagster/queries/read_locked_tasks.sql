-- The tasks of these jobs, each with what is known of it from before the run that is to settle it.
select t.cron_job_id as job_id, t.id, t.organization_id, t.user_id, t.kind, t.title, t.payload::text as payload, t.cron,
       t.instant, t.timezone, t.status::text as status, t.next_run_at, t.zone_data, t.deleted_at is not null as deleted,
       clock_timestamp() as now, mine.status::text as mine_status, mine.error as mine_error,
       asked.status::text as asked_status, upcoming.status::text as next_status
from unnest(%(jobs)s::uuid[], %(runs)s::bigint[], %(moments)s::timestamptz[]) as run (job_id, id, scheduled_at)
join sumaclock.ai_tasks t on t.cron_job_id = run.job_id
left join sumaclock.ai_task_runs mine
    on mine.task_id = t.id and mine.scheduled_for = t.last_scheduled_for and mine.cron_run_id = run.id
left join sumaclock.ai_task_runs asked on asked.task_id = t.id and asked.scheduled_for = run.scheduled_at
left join sumaclock.ai_task_runs upcoming on upcoming.task_id = t.id and upcoming.scheduled_for = coalesce(t.next_run_at, t.instant)
