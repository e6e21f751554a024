-- How many task runs that a schedule asked for began how late: bucket 0 is below the first of the edges (seconds).
select width_bucket(extract(epoch from started_at - scheduled_for)::float8, %(edges)s::float8[]) as bucket,
       count(*) as task_runs
from sumaclock.ai_task_runs
where finished_at >= now() - make_interval(days => %(days)s) and trigger <> 'manual'
group by 1
order by 1
