update sumaclock.workers
set retires_at = now()
where id = %(worker)s
  and %(keep)s < (select count(*) from sumaclock.workers w
                  where w.stopped_at is null and w.id in (select worker_id from sumaclock.worker_sessions)
                    and w.heartbeat_at between now() - %(fresh)s * interval '1 second' and now() + %(fresh)s * interval '1 second'
                    and w.retires_at > now() + %(ahead)s * interval '1 second')
returning id
