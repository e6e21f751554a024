-- Each system job's current period: whether it is still to be executed, as far as this look can tell, how often it was
-- begun, and in how many seconds the next period begins.
select job.name, coalesce(r.finished_at is null and r.attempts < %(most_attempts)s, true) as is_open,
       (job.number + 1) * job.every - clock.epoch as next_seconds
from unnest(%(names)s::text[], %(every)s::float8[]) as listed (name, every)
cross join (select extract(epoch from clock_timestamp())::float8 as epoch) clock
cross join lateral (select listed.name, listed.every, floor(clock.epoch / listed.every) as number) job
left join sumaclock.system_job_runs r on r.name = job.name and r.period = to_timestamp(job.number * job.every)
