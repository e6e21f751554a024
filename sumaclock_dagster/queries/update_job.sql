update sumaclock.cron_jobs
set kind = coalesce(%(kind)s::text, kind),
    payload = coalesce(%(payload)s::jsonb, payload),
    schedule = coalesce(%(schedule)s::text, schedule),
    enabled = coalesce(%(enabled)s::boolean, enabled),
    updated_at = now()
where id = %(job_id)s
returning id, kind, organization_id, user_id, payload, schedule, enabled, created_at, updated_at
