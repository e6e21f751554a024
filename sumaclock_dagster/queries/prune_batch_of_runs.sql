-- One batch of the walk through the runs in the order of their ids, which is the order of their firings. The delete
-- looks at the row again: a run that was set back to pending meanwhile stays. `past` says that a run fired before the
-- cutoff was seen, so older ones may follow.
with batch as (
    select id, scheduled_at
    from sumaclock.cron_runs
    where id > %(after)s
    order by id
    limit %(batch)s
), deleted as (
    delete from sumaclock.cron_runs r
    using batch b
    where r.id = b.id
      and r.status in ('done', 'failed', 'skipped')
      and r.finished_at < now() - make_interval(days => %(retention_days)s)
    returning r.id
)
select (select max(id) from batch) as last_id,
       coalesce((select bool_or(scheduled_at < now() - make_interval(days => %(retention_days)s)) from batch), false) as past,
       (select count(*) from deleted) as deleted;
