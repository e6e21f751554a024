-- What is said to come from the future is of before the server's clock was set back: no sign of life.
with pool as (
    select w.started_at is null
               and w.requested_at between now() - %(start)s * interval '1 second' and now() + %(start)s * interval '1 second' as starting,
           w.id in (select worker_id from sumaclock.worker_sessions)
               and w.heartbeat_at between now() - %(fresh)s * interval '1 second' and now() + %(fresh)s * interval '1 second' as living,
           w.retires_at > now() + %(ahead)s * interval '1 second' as staying
    from sumaclock.workers w
    where w.stopped_at is null
), due as (
    select due_at from sumaclock.cron_runs where finished_at is null and status = 'pending' and due_at <= now() order by due_at limit %(count_to)s
)
select (select count(*) from pool where living and staying),
       (select count(*) from pool where starting),
       (select count(*) from pool where living and not staying),
       (select count(*) from due),
       coalesce(extract(epoch from now() - (select min(due_at) from due))::float8, 0)
