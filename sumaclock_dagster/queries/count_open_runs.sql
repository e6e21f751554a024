-- Runs that have not ended, by kind.
select j.kind, r.status::text, count(*)
from sumaclock.cron_runs r
join sumaclock.cron_jobs j on j.id = r.job_id
where r.finished_at is null
group by 1, 2
