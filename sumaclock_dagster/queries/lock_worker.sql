select pg_try_advisory_lock(%(lock_class)s, %(worker)s)
