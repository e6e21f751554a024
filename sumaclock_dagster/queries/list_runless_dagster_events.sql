-- One step of a walk through Dagster's events by the id of the Dagster run, an index probe each: the next so many ids,
-- and which of them have no Dagster run any more, have been silent since the cutoff, and were a job's of ours. Events
-- that were reported without any Dagster run have an empty id; they are somebody's news, and not looked at.
with recursive walk as (
    (select run_id from event_logs where run_id > %(after)s order by run_id limit 1)
    union all
    (select (select e.run_id from event_logs e where e.run_id > w.run_id order by e.run_id limit 1)
     from walk w where w.run_id is not null)
), step as (
    select run_id from walk where run_id is not null limit %(batch)s
)
select (select max(run_id) from step) as last_id,
       array(
           select s.run_id
           from step s
           cross join lateral (
               select e.event, e.timestamp from event_logs e where e.run_id = s.run_id order by e.id desc limit 1
           ) as newest
           where not exists (select from runs r where r.run_id = s.run_id)
             and newest.timestamp < %(before)s::timestamptz at time zone 'UTC'
             and newest.event::json ->> 'pipeline_name' = any (%(jobs)s::text[])
             and s.run_id <> all (%(kept)s::text[])
       ) as run_ids
