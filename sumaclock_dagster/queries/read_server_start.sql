-- To the microsecond: no two servers share it, as a clone and its origin share their system identifier.
select pg_catalog.pg_postmaster_start_time()
