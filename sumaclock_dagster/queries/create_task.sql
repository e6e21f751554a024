select sumaclock.create_task(
    organization_id => %(organization_id)s::text, user_id => %(user_id)s::text, kind => %(kind)s::text, title => %(title)s::text,
    payload => %(payload)s::jsonb, cron => %(cron)s::text, instant => %(instant)s::timestamptz, timezone => %(timezone)s::text)
