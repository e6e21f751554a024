-- The task runs that ended within the last so many days. Lateness (seconds) counts those that the schedule asked for.
select count(*) as task_runs,
       count(*) filter (where status = 'done') as done,
       count(*) filter (where status = 'failed') as failed,
       count(*) filter (where status = 'skipped') as skipped,
       (select count(*) from sumaclock.ai_task_runs where finished_at is null) as running,
       percentile_cont(0.5) within group (order by extract(epoch from started_at - scheduled_for))
           filter (where trigger <> 'manual') as lateness_p50,
       percentile_cont(0.99) within group (order by extract(epoch from started_at - scheduled_for))
           filter (where trigger <> 'manual') as lateness_p99
from sumaclock.ai_task_runs
where finished_at >= now() - make_interval(days => %(days)s)
