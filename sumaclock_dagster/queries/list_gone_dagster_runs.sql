-- Of these Dagster runs those whose worker is gone, or never came. One that ended lately may still be on its way out.
select asked.id::text
from unnest(%(ids)s::uuid[]) as asked (id)
where not exists (
    select from sumaclock.workers w
    where w.dagster_run_id = asked.id
      and (w.id in (select worker_id from sumaclock.worker_sessions)
           or coalesce(w.stopped_at, w.heartbeat_at, w.requested_at) > now() - %(quiet)s * interval '1 second')
)
