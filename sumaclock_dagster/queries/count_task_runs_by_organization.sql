-- As sum_up_task_runs, for each organisation; those with most task runs first.
select t.organization_id,
       count(*) filter (where r.status = 'done') as done,
       count(*) filter (where r.status = 'failed') as failed,
       count(*) filter (where r.status = 'skipped') as skipped,
       percentile_cont(0.5) within group (order by extract(epoch from r.started_at - r.scheduled_for))
           filter (where r.trigger <> 'manual') as lateness_p50,
       percentile_cont(0.99) within group (order by extract(epoch from r.started_at - r.scheduled_for))
           filter (where r.trigger <> 'manual') as lateness_p99
from sumaclock.ai_task_runs r
join sumaclock.ai_tasks t on t.id = r.task_id
where r.finished_at >= now() - make_interval(days => %(days)s)
group by t.organization_id
order by count(*) desc, t.organization_id
limit %(limit)s
