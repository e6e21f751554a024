-- One batch of the walk through the launches in the order of their ids, in which they were written.
with batch as (
    select id, created_at
    from sumaclock.dagster_launches
    where id > %(after)s
    order by id
    limit %(batch)s
), deleted as (
    delete from sumaclock.dagster_launches l
    using batch b
    where l.id = b.id
      and l.state = 'ended'
      and l.ended_at < now() - make_interval(days => %(retention_days)s)
    returning l.id
)
select (select max(id) from batch) as last_id,
       coalesce((select bool_or(created_at < now() - make_interval(days => %(retention_days)s)) from batch), false) as past,
       (select count(*) from deleted) as deleted
