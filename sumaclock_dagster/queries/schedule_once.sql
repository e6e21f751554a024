select sumaclock.schedule_once(%(command)s, max_attempts => %(max_attempts)s, run_after => %(run_after)s, priority => %(priority)s,
                               timeout => %(timeout)s, dedup_key => %(dedup_key)s, note => %(note)s)
