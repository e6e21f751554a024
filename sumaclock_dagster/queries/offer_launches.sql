-- Launches that Dagster is to be asked for now. One that was asked for twice in vain is asked for alone: it may be what
-- made the others of its tick fail.
with waiting as (
    select id, offers
    from sumaclock.dagster_launches
    where state = 'requested' and (offered_until is null or offered_until < clock_timestamp())
      and (jsonb_exists(target, 'assets') and coalesce(target ->> 'location', %(location)s) = %(location)s) = %(assets)s
), alone as materialized (
    select id from sumaclock.dagster_launches
    where id = (select min(id) from waiting where offers > 1) and state = 'requested'
    for update skip locked
), together as materialized (
    select id from sumaclock.dagster_launches
    where id in (select id from waiting where offers < 2 order by id limit %(most)s) and state = 'requested'
      and not exists (select from alone)
    order by id
    for update skip locked
), offered as (
    update sumaclock.dagster_launches l
    set offered_until = clock_timestamp() + %(lease)s * interval '1 second', offers = l.offers + 1
    from (select id from alone union all select id from together) p
    where l.id = p.id and l.state = 'requested' and (l.offered_until is null or l.offered_until < clock_timestamp())
    returning l.*
)
select id, cron_run_id, job_id, task_id, scheduled_for, launch_key, organization_id, user_id, target, offers
from offered
order by id
