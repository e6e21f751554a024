-- Failed runs and task runs that ended after one moment and are not told yet, oldest first. A run that is tried again and
-- fails again ended anew, so its key is a new one. A run whose failure is that of its task run is told once.
select f.what || f.id || '@' || (extract(epoch from f.finished_at) * 1000)::bigint as key,
       f.what, f.id, f.kind, f.organization_id,
       left(split_part(coalesce(f.error, ''), E'\n', 1), 300) as error,
       extract(epoch from f.finished_at)::float8 as finished_at
from (
    select 'run' as what, r.id, j.kind, j.organization_id, r.error, r.finished_at
    from sumaclock.cron_runs r
    join sumaclock.cron_jobs j on j.id = r.job_id
    where r.status = 'failed'
      and r.finished_at > to_timestamp(%(after)s)
      and r.scheduled_at >= to_timestamp(%(after)s) - interval '7 days'
      and not exists (select from sumaclock.ai_task_runs t where t.cron_run_id = r.id and t.status = 'failed'
                      and t.finished_at > to_timestamp(%(after)s) - interval '1 day')
    union all
    select 'task run', t.id, a.kind, a.organization_id, t.error, t.finished_at
    from sumaclock.ai_task_runs t
    join sumaclock.ai_tasks a on a.id = t.task_id
    where t.status = 'failed' and t.finished_at > to_timestamp(%(after)s)
) f
where not f.what || f.id || '@' || (extract(epoch from f.finished_at) * 1000)::bigint = any (%(told)s::text[])
order by f.finished_at, f.what, f.id
limit %(limit)s
