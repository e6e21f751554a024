-- How many of these ids are of jobs here, and how many of these slots are. Slots have the same ids everywhere.
select (select count(*) from sumaclock.cron_jobs j where j.id::text = any (%(ids)s::text[])),
       (select count(*) from sumaclock.clock_slots s where s.id::text = any (%(slots)s::text[]))
