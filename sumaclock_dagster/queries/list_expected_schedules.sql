-- What the clock should have fired: each schedule of enabled jobs with the moment from which it counts, and as the row
-- without a schedule the newest minute that a task still waits for. A server that was down could not fire.
select j.schedule, greatest(min(j.updated_at), pg_catalog.pg_postmaster_start_time()) as since
from sumaclock.cron_jobs j
where j.enabled and not exists (select from sumaclock.ai_tasks t where t.cron_job_id = j.id)
group by j.schedule
union all
select null, max(t.next_run_at)
from sumaclock.ai_tasks t
where t.status = 'active' and t.deleted_at is null
  and t.next_run_at <= now() - %(grace)s * interval '1 second'
  and t.next_run_at > pg_catalog.pg_postmaster_start_time()
having max(t.next_run_at) is not null
