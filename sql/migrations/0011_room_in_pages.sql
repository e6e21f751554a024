-- A run gets two new versions within a second, and while claims and outcomes are written at the same time the oldest is
-- not cleaned away before the third comes. With room for all three on its page an outcome takes no other page's room, in
-- which a waiting run's claim is to stay.
alter table sumaclock.cron_runs set (fillfactor = 35);
