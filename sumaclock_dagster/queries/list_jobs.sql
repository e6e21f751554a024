select id, kind, organization_id, user_id, payload, schedule, enabled, catch_up, overlap, created_at, updated_at
from sumaclock.cron_jobs
where (%(organization_id)s::text is null or organization_id = %(organization_id)s::text)
  and (%(kind)s::text is null or kind = %(kind)s::text)
  and (%(enabled)s::boolean is null or enabled = %(enabled)s::boolean)
order by created_at desc, id
limit %(limit)s
