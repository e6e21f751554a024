select count(*)
from sumaclock.ai_tasks t
where t.status = 'active' and t.deleted_at is null and t.next_run_at <= now() - %(late)s * interval '1 second'
  and not exists (select from sumaclock.cron_runs r where r.job_id = t.cron_job_id and r.status in ('pending', 'running'))
