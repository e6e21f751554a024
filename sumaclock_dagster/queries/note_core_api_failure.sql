-- Open: the failure that is one too many closes the line. Closed: attempts that were under way when it closed say nothing
-- new. Over: this was the one attempt that tried whether core-api is back, so the next pause is longer.
update sumaclock.core_api_line as line
set failures = case when line.closed_until is null then line.failures + 1 else line.failures end,
    pauses = next.pauses,
    width = case when next.pauses > 0 then 1 else line.width end,
    closed_until = case
        when next.pauses = 0 then null
        when next.pauses = line.pauses then greatest(line.closed_until, statement_timestamp() + %(retry_after)s * interval '1 second')
        else statement_timestamp() + interval '1 second' * greatest(
            %(retry_after)s, least(%(first_pause)s * 2.0 ^ least(next.pauses - 1, 30), %(longest_pause)s) * (0.5 + random() / 2)) end
from (
    select case when l.closed_until > statement_timestamp() then l.pauses
                when l.closed_until is null and l.failures + 1 < %(failures_to_close)s then 0
                else l.pauses + 1 end as pauses
    from sumaclock.core_api_line as l
) as next
where %(counts)s or line.closed_until is not null
