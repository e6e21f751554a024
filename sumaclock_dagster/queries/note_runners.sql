select sumaclock.note_runners(coalesce(%(role)s, session_user)::name, %(slots)s)
