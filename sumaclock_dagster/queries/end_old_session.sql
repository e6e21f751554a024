select pg_catalog.pg_terminate_backend(pid)
from sumaclock.worker_sessions
where worker_id = %(worker)s and pid = %(pid)s
