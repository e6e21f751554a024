select sumaclock.cancel_once(%(jobid)s)
