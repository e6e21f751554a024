delete from sumaclock.workers
where id in (
    select id
    from sumaclock.workers
    where stopped_at < now() - make_interval(days => %(retention_days)s)
    order by id
    limit %(batch)s
);
