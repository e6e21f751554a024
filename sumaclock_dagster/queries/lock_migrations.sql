-- The limit is for the lock alone: it may be waited for, but not for ever, and the migrations keep their own limits.
select set_config('lock_timeout', '10min', false);
select pg_advisory_lock(1937075553, 0);
reset lock_timeout
