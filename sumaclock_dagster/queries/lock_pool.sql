select pg_try_advisory_xact_lock(%(lock_class)s, 0)
