-- Once an occurrence (rule 7). One that failed or was skipped is recorded anew when it is tried again by hand.
insert into sumaclock.ai_task_runs as known
    (task_id, scheduled_for, trigger, status, result, error, cron_run_id, idempotency_key, started_at, finished_at)
values
    (%(task)s, %(scheduled_for)s, %(trigger)s::sumaclock.task_run_trigger, %(status)s::sumaclock.task_run_status, %(result)s::jsonb,
     %(error)s, %(run)s, %(key)s, %(started_at)s,
     case when %(status)s <> 'running' then greatest(clock_timestamp(), %(started_at)s) end)
on conflict (task_id, scheduled_for) do update
set trigger = excluded.trigger, status = excluded.status, result = excluded.result, error = excluded.error,
    cron_run_id = excluded.cron_run_id, started_at = excluded.started_at, finished_at = excluded.finished_at
where known.status not in ('done', 'running')
returning known.id
