-- Keeps the clock from firing jobs that skip until their catch-up is committed, some at a time. What the clock is firing
-- just now is not held: it needs no catch-up.
with candidates as materialized (
    select j.id, s.id as slot_id
    from unnest(%(schedules)s::text[], %(moments)s::timestamptz[]) as due (schedule, moment)
    join sumaclock.cron_jobs j on j.schedule = due.schedule
    left join sumaclock.clock_slots s on s.schedule = j.schedule
    where j.enabled and j.overlap = 'skip' and j.updated_at < due.moment and j.id > %(after)s
      and not exists (select from sumaclock.cron_runs r
                      where r.job_id = j.id and r.scheduled_at >= due.moment and r.trigger in ('clock', 'catch_up'))
    order by j.id
    limit %(at_once)s
)
select c.id,
       pg_try_advisory_xact_lock(hashtextextended('sumaclock firing ' || c.id, 0))
       and (c.slot_id is null or pg_try_advisory_xact_lock(hashtextextended('sumaclock firing ' || c.slot_id, 0))) as held
from candidates c
order by c.id
