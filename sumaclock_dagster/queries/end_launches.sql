-- A launch ends once, and takes its run, its task run and a task of one instant along. A run that is not handed over
-- yet is told by the hand-over.
with given as materialized (
    select * from unnest(%(ids)s::bigint[], %(outcomes)s::text[], %(errors)s::text[], %(results)s::text[]) as g (id, outcome, error, result)
), held as materialized (
    select l.id, l.cron_run_id, l.task_id, l.scheduled_for, g.outcome, g.error, g.result::jsonb as result
    from sumaclock.dagster_launches l
    join given g on g.id = l.id
    where l.state <> 'ended'
    order by l.id
    for update of l
), runs as (
    update sumaclock.cron_runs r
    set status = h.outcome::sumaclock.run_status, finished_at = clock_timestamp(), error = h.error, result = h.result, claimed_by = 0
    from held h
    where r.id = h.cron_run_id and r.claimed_by = -1 and r.status = 'running'
    returning r.id
), task_runs as (
    update sumaclock.ai_task_runs t
    set status = h.outcome::sumaclock.task_run_status, finished_at = greatest(clock_timestamp(), t.started_at), error = h.error, result = h.result
    from held h
    where t.task_id = h.task_id and t.scheduled_for = h.scheduled_for and t.cron_run_id = h.cron_run_id and t.status = 'running'
), tasks as (
    update sumaclock.ai_tasks t
    set status = 'failed', status_reason = left(split_part(h.error, E'\n', 1), 2000), updated_at = now()
    from held h
    where t.id = h.task_id and h.outcome = 'failed' and t.instant is not null and t.status = 'done'
      and t.last_scheduled_for = h.scheduled_for and t.deleted_at is null
)
update sumaclock.dagster_launches l
set state = 'ended', outcome = h.outcome::sumaclock.launch_outcome, error = h.error, result = h.result, ended_at = clock_timestamp(),
    offered_until = null, told = exists (select from runs where runs.id = h.cron_run_id)
from held h
where l.id = h.id
returning l.id
