-- One batch of the walk through Dagster's check executions in the order of their ids. What a check of ours last said
-- stays, however old it is, and so does what belongs to a Dagster run that is still there.
with batch as (
    select id, asset_key, check_name, run_id, coalesce(evaluation_event_timestamp, create_timestamp) as at
    from asset_check_executions
    where id > %(after)s and asset_key = any (%(assets)s::text[])
    order by id
    limit %(batch)s
), deleted as (
    delete from asset_check_executions c
    using batch b
    where c.id = b.id
      and b.at < %(before)s::timestamptz at time zone 'UTC'
      and not exists (select from runs r where r.run_id = b.run_id)
      and exists (
          select from asset_check_executions later
          where later.asset_key = b.asset_key and later.check_name = b.check_name and later.id > b.id
      )
    returning c.id
)
select (select max(id) from batch) as last_id,
       coalesce((select bool_or(at < %(before)s::timestamptz at time zone 'UTC') from batch), false) as past,
       (select count(*) from deleted) as deleted
