insert into sumaclock.cron_jobs (id, kind, organization_id, user_id, payload, schedule, enabled, catch_up)
values (coalesce(%(job_id)s::uuid, gen_random_uuid()), %(kind)s, %(organization_id)s, %(user_id)s, %(payload)s::jsonb,
        %(schedule)s, %(enabled)s, %(catch_up)s)
returning id, kind, organization_id, user_id, payload, schedule, enabled, catch_up, created_at, updated_at
