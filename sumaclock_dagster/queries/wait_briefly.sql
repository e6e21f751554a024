-- Who waits in a transaction that many tasks share holds up all of them.
set local lock_timeout = '1s'
