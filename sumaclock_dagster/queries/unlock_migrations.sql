select pg_advisory_unlock(1937075553, 0)
