update sumaclock.workers
set started_at = coalesce(started_at, now()), heartbeat_at = now(), stopped_at = null,
    retires_at = coalesce(retires_at, now() + %(life)s * interval '1 second'),
    code_version = %(code_version)s, dagster_run_id = %(dagster_run)s, host = %(host)s, pid = %(pid)s
where id = %(worker)s
returning id, pg_notify('sumaclock_workers', 'started')
