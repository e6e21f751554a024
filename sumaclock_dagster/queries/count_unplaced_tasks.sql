-- Tasks that a worker should have placed by now, and tasks that other zone data placed.
select count(*) filter (where t.next_run_at is null), count(*) filter (where t.next_run_at is not null)
from sumaclock.ai_tasks t
where t.status = 'active' and t.deleted_at is null
  and (t.next_run_at is null and t.updated_at < now() - interval '1 minute'
       or t.next_run_at > now() and t.zone_data is distinct from %(zone_data)s)
  and not exists (select from sumaclock.cron_runs r where r.job_id = t.cron_job_id and r.status in ('pending', 'running'))
