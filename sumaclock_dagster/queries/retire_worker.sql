update sumaclock.workers
set retires_at = now()
where id = %(worker)s and retires_at > now()
returning pg_notify('sumaclock_workers', 'retires')
