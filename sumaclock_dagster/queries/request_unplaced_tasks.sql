-- A request, which settles and places each of them. Conditions as in count_unplaced_tasks.sql.
with unplaced as materialized (
    select t.cron_job_id, t.next_run_at is null as is_new
    from sumaclock.ai_tasks t
    where t.status = 'active' and t.deleted_at is null
      and (t.next_run_at is null and t.updated_at < now() - interval '1 minute'
           or t.next_run_at > now() and t.zone_data is distinct from %(zone_data)s)
      and not exists (select from sumaclock.cron_runs r where r.job_id = t.cron_job_id and r.status in ('pending', 'running'))
    for update of t skip locked
), requested as (
    insert into sumaclock.cron_runs (job_id, trigger, scheduled_at)
    select cron_job_id, 'request', now() from unplaced
    returning id
), told as (
    select pg_notify('cron_runs', '') from (select from requested limit 1) r
)
select count(*) filter (where is_new), count(*) filter (where not is_new), (select count(*) from told)
from unplaced
