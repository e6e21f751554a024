select sumaclock.owner_has_access(%(organization)s, %(user)s)
