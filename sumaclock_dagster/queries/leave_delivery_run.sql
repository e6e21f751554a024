-- A later run is put off only while it lies in the future: one that is due may be what a commit of this moment relies on.
with unfinished as (
    select min(next_attempt_at) as first_at
    from sumaclock.core_api_jobs
    where status in ('pending', 'sending')
), wanted as materialized (
    select greatest(u.first_at, line.closed_until, statement_timestamp() + %(not_before)s * interval '1 second') as at
    from unfinished u, sumaclock.core_api_line as line
    where u.first_at is not null
), later as materialized (
    select r.id, r.due_at
    from sumaclock.cron_runs r
    where r.finished_at is null and r.status = 'pending' and r.job_id = 'a3fbeb71-424d-5b9e-8a81-0ecde17f25f7'
    order by r.due_at
    limit 1
    for no key update skip locked
), moved as (
    update sumaclock.cron_runs r
    set due_at = wanted.at, scheduled_at = wanted.at
    from later, wanted
    where r.id = later.id and (later.due_at > wanted.at or later.due_at > clock_timestamp())
    returning pg_notify('cron_runs', '')
)
select (select count(*) from moved), case when not exists (select from later) then sumaclock.ask_for_delivery(wanted.at) end
from wanted
