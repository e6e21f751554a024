select s.id, count(j.id)
from sumaclock.clock_slots s
left join sumaclock.cron_jobs j on j.schedule = s.schedule and j.enabled and j.slot_since is not null
group by s.id
