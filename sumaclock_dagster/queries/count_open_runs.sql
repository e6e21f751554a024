-- Runs that have not ended, by kind. A running one belongs to a worker that has not stopped, and the index knows those.
select j.kind, r.status::text, count(*)
from (
    select p.job_id, p.status from sumaclock.cron_runs p where p.claimed_by is null
    union all
    select c.job_id, c.status
    from sumaclock.cron_runs c
    where c.claimed_by in (select w.id from sumaclock.workers w where w.stopped_at is null) and c.status = 'running'
) r
join sumaclock.cron_jobs j on j.id = r.job_id
group by 1, 2
