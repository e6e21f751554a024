with again as (
    update sumaclock.cron_runs
    set status = 'pending', attempts = 0, lost = 0, due_at = now(),
        -- What was asked for is carried out, not executed by hand as well.
        trigger = case when trigger = 'request' then trigger else 'manual' end, claimed_by = null,
        started_at = null, finished_at = null, heartbeat_at = null, result = null
    where id = %(id)s and status in ('failed', 'skipped')
    returning id
)
select id, pg_notify('cron_runs', '') from again
