select distinct j.schedule
from sumaclock.cron_jobs j
where j.enabled and not exists (select from sumaclock.ai_tasks t where t.cron_job_id = j.id)
