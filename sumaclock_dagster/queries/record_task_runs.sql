-- Once an occurrence (rule 7). One that failed or was skipped is recorded anew when it is tried again by hand.
insert into sumaclock.ai_task_runs as known
    (task_id, scheduled_for, trigger, status, result, error, cron_run_id, idempotency_key, started_at, finished_at)
select made.task_id, made.scheduled_for, made.trigger::sumaclock.task_run_trigger,
       made.status::sumaclock.task_run_status, made.result::jsonb, made.error, made.run_id, made.key, made.started_at,
       made.finished_at
from unnest(%(task_ids)s::uuid[], %(scheduled_for)s::timestamptz[], %(triggers)s::text[], %(statuses)s::text[],
            %(results)s::text[], %(errors)s::text[], %(run_ids)s::bigint[], %(keys)s::text[],
            %(started_at)s::timestamptz[], %(finished_at)s::timestamptz[])
     as made (task_id, scheduled_for, trigger, status, result, error, run_id, key, started_at, finished_at)
on conflict (task_id, scheduled_for) do update
set trigger = excluded.trigger, status = excluded.status, result = excluded.result, error = excluded.error,
    cron_run_id = excluded.cron_run_id, started_at = excluded.started_at, finished_at = excluded.finished_at
where known.status not in ('done', 'running')
returning known.task_id
