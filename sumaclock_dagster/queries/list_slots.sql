select s.id from sumaclock.clock_slots s where %(ids)s::uuid[] is null or s.id = any (%(ids)s::uuid[])
