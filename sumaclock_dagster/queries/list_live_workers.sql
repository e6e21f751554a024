select w.id, w.code_version, w.code_location, w.started_at, w.heartbeat_at, w.retires_at, w.dagster_run_id, w.host, w.pid
from sumaclock.workers w
where w.stopped_at is null and w.started_at is not null and w.id in (select worker_id from sumaclock.worker_sessions)
order by w.id
