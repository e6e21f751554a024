insert into sumaclock.clock_slots (id, schedule)
select * from unnest(%(ids)s::uuid[], %(schedules)s::text[])
on conflict (id) do nothing
