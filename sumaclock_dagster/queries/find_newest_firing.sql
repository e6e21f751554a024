-- The minute of the clock's newest firing. The clock writes in the order of time, so that is the one with the highest id.
select r.scheduled_at
from sumaclock.cron_runs r
where r.trigger = 'clock' and r.scheduled_at >= now() - interval '7 days'
order by r.id desc
limit 1
