update sumaclock.cron_jobs
set kind = coalesce(%(kind)s::text, kind),
    payload = coalesce(%(payload)s::jsonb, payload),
    schedule = coalesce(%(schedule)s::text, schedule),
    enabled = coalesce(%(enabled)s::boolean, enabled),
    catch_up = coalesce(%(catch_up)s::text, catch_up),
    overlap = coalesce(%(overlap)s::text, overlap),
    updated_at = now()
where id = %(job_id)s
returning id, kind, organization_id, user_id, payload, schedule, enabled, catch_up, overlap, created_at, updated_at
