delete from sumaclock.clock_slots where id = any (%(ids)s::uuid[])
