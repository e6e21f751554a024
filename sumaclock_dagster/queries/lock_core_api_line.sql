-- The lock orders all decisions about sending. The line is free when its sender has left, or was not seen for a while.
insert into sumaclock.core_api_line as line (sender, sender_seen_at)
values (%(sender)s, clock_timestamp())
on conflict (the_only_row) do update
set (sender, sender_seen_at) = (
    select case when free then excluded.sender else line.sender end,
           case when free then clock_timestamp() else line.sender_seen_at end
    from (select line.sender is null or line.sender = excluded.sender
                 or line.sender_seen_at < clock_timestamp() - %(unseen)s * interval '1 second' as free) as state
)
returning sender = %(sender)s
