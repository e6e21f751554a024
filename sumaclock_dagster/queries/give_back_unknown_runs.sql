update sumaclock.cron_runs r
set status = 'pending', attempts = r.attempts - 1, claimed_by = null, started_at = null, heartbeat_at = null
where r.finished_at is null and r.claimed_by = %(worker)s
  and not exists (select from unnest(%(ids)s::bigint[], %(attempts)s::smallint[]) as g (id, attempt)
                  where g.id = r.id and g.attempt = r.attempts)
returning r.id
