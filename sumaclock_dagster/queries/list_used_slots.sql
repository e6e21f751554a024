-- Of these slots, those by which a job fires.
select s.id
from sumaclock.clock_slots s
where s.id = any (%(ids)s::uuid[])
  and exists (select from sumaclock.cron_jobs j where j.schedule = s.schedule and j.enabled and j.slot_since is not null)
