update sumaclock.core_api_line set sender = null, sender_seen_at = null where sender = %(sender)s
