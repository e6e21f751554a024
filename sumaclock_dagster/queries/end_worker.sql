with ended as (
    update sumaclock.workers
    set stopped_at = now()
    where id = %(worker)s
      and not exists (select from sumaclock.cron_runs where finished_at is null and claimed_by = %(worker)s)
    returning id
)
select count(*), pg_notify('sumaclock_workers', 'ended') from ended
