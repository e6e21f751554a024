select j.schedule, j.enabled, j.slot_since is not null as in_slot from sumaclock.cron_jobs j where j.id = %(job_id)s
