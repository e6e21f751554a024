insert into sumaclock.cron_jobs (id, kind, organization_id, user_id, payload, schedule, enabled, catch_up, overlap)
values (coalesce(%(job_id)s::uuid, gen_random_uuid()), %(kind)s, %(organization_id)s, %(user_id)s, %(payload)s::jsonb,
        %(schedule)s, %(enabled)s, %(catch_up)s, %(overlap)s)
returning id, kind, organization_id, user_id, payload, schedule, enabled, catch_up, overlap, created_at, updated_at
