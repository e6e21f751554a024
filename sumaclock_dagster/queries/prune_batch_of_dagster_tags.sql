-- One batch of the walk through the tags of Dagster's asset events in the order of their ids: those of our assets whose
-- event is gone.
with batch as (
    select id, event_id, asset_key, event_timestamp as at
    from asset_event_tags
    where id > %(after)s and asset_key = any (%(assets)s::text[])
    order by id
    limit %(batch)s
), deleted as (
    delete from asset_event_tags t
    using batch b
    where t.id = b.id
      and b.at < %(before)s::timestamptz at time zone 'UTC'
      and not exists (select from event_logs e where e.id = b.event_id)
    returning t.id
)
select (select max(id) from batch) as last_id,
       coalesce((select bool_or(at < %(before)s::timestamptz at time zone 'UTC') from batch), false) as past,
       (select count(*) from deleted) as deleted
