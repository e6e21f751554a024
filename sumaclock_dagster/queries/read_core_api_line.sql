-- Not one statement with the lock: it must see what was committed until the lock was ours. An attempt whose lease is over
-- is no longer under way.
with flight as (
    select count(*) as attempts, min(next_attempt_at) as first_lease
    from sumaclock.core_api_jobs
    where status = 'sending' and next_attempt_at > statement_timestamp()
)
select greatest(0, case when line.closed_until > statement_timestamp() then 0
                        when line.closed_until is not null then 1
                        else least(line.width, %(concurrency)s) end - flight.attempts)::integer as room,
       line.closed_until is not null as probing,
       extract(epoch from flight.first_lease - statement_timestamp())::float8 as room_in
from sumaclock.core_api_line as line, flight
