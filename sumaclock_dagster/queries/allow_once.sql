select sumaclock.allow_once(%(role)s)
