update sumaclock.cron_runs
set status = 'pending', attempts = attempts - 1, claimed_by = null, started_at = null, heartbeat_at = null
where claimed_by = %(worker)s and status = 'running' and id <> all (%(known)s::bigint[])
returning id
