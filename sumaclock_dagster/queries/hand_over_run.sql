-- The run goes on in its Dagster run; or takes its outcome at once, where that has ended meanwhile. Nothing where the
-- claim was lost, or the run was handed over before.
with launch as materialized (
    select id, state, outcome, error, result, dagster_run_id
    from sumaclock.dagster_launches
    where cron_run_id = %(run)s and not told
    for update
), handed as (
    update sumaclock.cron_runs r
    set claimed_by = case when l.state = 'ended' then 0 else -1 end,
        status = case when l.state = 'ended' then l.outcome::text else 'running' end::sumaclock.run_status,
        finished_at = case when l.state = 'ended' then clock_timestamp() end,
        heartbeat_at = now(), dagster_run_id = l.dagster_run_id, error = l.error, result = l.result
    from launch l
    where r.id = %(run)s and r.attempts = %(attempt)s and r.status = 'running' and r.claimed_by <> -1
    returning r.id
), told as (
    update sumaclock.dagster_launches d
    set told = true
    from launch l, handed
    where d.id = l.id and l.state = 'ended'
)
select id from launch
