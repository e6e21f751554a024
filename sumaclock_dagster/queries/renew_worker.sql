update sumaclock.workers
set heartbeat_at = now(), stopped_at = null
where id = %(worker)s
returning retires_at <= now(), extract(epoch from clock_timestamp())::float8
