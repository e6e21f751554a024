select sumaclock.update_task(
    task_id => %(task_id)s::uuid, kind => %(kind)s::text, title => %(title)s::text, payload => %(payload)s::jsonb,
    cron => %(cron)s::text, instant => %(instant)s::timestamptz, timezone => %(timezone)s::text)
