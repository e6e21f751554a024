update sumaclock.workers w
set stopped_at = now()
where w.stopped_at is null
  and w.id not in (select worker_id from sumaclock.worker_sessions)
  and case when w.started_at is null then w.requested_at < now() - %(start)s * interval '1 second'
           else greatest(w.heartbeat_at, pg_postmaster_start_time()) < now() - %(dead_session)s * interval '1 second' end
returning w.id
