-- Runs that ended after one moment and up to another, by kind and outcome. The bound on the minute is for the index.
select j.kind, r.status::text, count(*)
from sumaclock.cron_runs r
join sumaclock.cron_jobs j on j.id = r.job_id
where r.status in ('done', 'failed', 'skipped')
  and r.finished_at > %(after)s and r.finished_at <= %(until)s
  and r.scheduled_at >= %(after)s - interval '1 day'
group by 1, 2
