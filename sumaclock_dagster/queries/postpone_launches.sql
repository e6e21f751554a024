-- Dagster could not be reached, or there was no time: asking counts for nothing, but what was asked may have arrived.
update sumaclock.dagster_launches
set offered_until = clock_timestamp() + %(seconds)s * interval '1 second', offers = greatest(offers - 1, 1)
where id = any(%(ids)s) and state = 'requested'
