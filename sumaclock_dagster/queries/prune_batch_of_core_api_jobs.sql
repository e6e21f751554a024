-- One batch of the walk through the core-api jobs in the order of their ids, in which they were written. What waits, is
-- on its way or was revived meanwhile stays.
with batch as (
    select id, created_at
    from sumaclock.core_api_jobs
    where id > %(after)s
    order by id
    limit %(batch)s
), deleted as (
    delete from sumaclock.core_api_jobs j
    using batch b
    where j.id = b.id
      and j.status in ('done', 'failed')
      and j.finished_at < now() - make_interval(days => %(retention_days)s)
    returning j.id
)
select (select max(id) from batch) as last_id,
       coalesce((select bool_or(created_at < now() - make_interval(days => %(retention_days)s)) from batch), false) as past,
       (select count(*) from deleted) as deleted
