-- Slots that are old enough and by which no job fires.
select s.id
from sumaclock.clock_slots s
where s.placed_at < now() - %(age)s * interval '1 second'
  and not exists (select from sumaclock.cron_jobs j where j.schedule = s.schedule and j.enabled and j.slot_since is not null)
order by s.placed_at
