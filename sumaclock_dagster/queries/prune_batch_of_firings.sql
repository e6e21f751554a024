-- One batch of the walk through pg_cron's log in the order of its ids. Row-level security shows the role's own entries
-- only; those of other databases are left alone all the same. An entry of a firing that never started has no time: it
-- is as old as its neighbours.
with batch as (
    select runid, start_time, start_time < now() - make_interval(days => %(retention_days)s) as is_old
    from cron.job_run_details
    where runid > %(after)s
      and database = %(database)s
    order by runid
    limit %(batch)s
), deleted as (
    delete from cron.job_run_details d
    using batch b
    where d.runid = b.runid
      and d.runid <= (select max(runid) from batch where is_old)
      and coalesce(d.end_time, d.start_time, '-infinity') < now() - make_interval(days => %(retention_days)s)
    returning d.runid
)
select (select max(runid) from batch) as last_id,
       coalesce((select bool_or(is_old) from batch), false) as past,
       (select count(*) from deleted) as deleted;
