with ended as (update sumaclock.workers set stopped_at = now() where id = %(worker)s returning id)
select pg_notify('sumaclock_workers', 'ended') from ended
