-- One index for all runs that have not ended, in the order in which they are claimed. A claim then changes no column
-- that an index knows: it stays on the row's page and writes no index entry, so a waiting handler starts sooner. What a
-- worker holds is found among the open runs, however many have ended. Queries name the index by `finished_at is null`.

create index cron_runs_open on sumaclock.cron_runs (due_at, id) where finished_at is null;
create index cron_runs_open_deliveries on sumaclock.cron_runs (due_at)
where finished_at is null and job_id = 'a3fbeb71-424d-5b9e-8a81-0ecde17f25f7';

drop index sumaclock.cron_runs_pending;
drop index sumaclock.cron_runs_claimed;
drop index sumaclock.cron_runs_deliveries;

create or replace function sumaclock.core_api_job_is_due() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp
as $$
declare
    wanted timestamptz := greatest(new.next_attempt_at, clock_timestamp());
    run_id bigint;
begin
    perform from sumaclock.cron_runs r
    where r.finished_at is null and r.status = 'pending' and r.job_id = 'a3fbeb71-424d-5b9e-8a81-0ecde17f25f7'
      and r.due_at <= wanted
    order by r.due_at
    limit 1
    for key share skip locked;
    if found then
        return null;
    end if;
    select r.id into run_id
    from sumaclock.cron_runs r
    where r.finished_at is null and r.status = 'pending' and r.job_id = 'a3fbeb71-424d-5b9e-8a81-0ecde17f25f7'
    order by r.due_at
    limit 1
    for no key update skip locked;
    if found then
        update sumaclock.cron_runs r
        set due_at = least(r.due_at, wanted), scheduled_at = least(r.scheduled_at, wanted)
        where r.id = run_id;
        notify cron_runs;
    else
        perform sumaclock.ask_for_delivery(wanted);
    end if;
    return null;
end $$;
