-- What core-api is to be asked, and the state of the line to it. A row is written in the transaction of the work that
-- wants it; the trigger sees to it that a delivery run comes once that transaction is committed.

create type sumaclock.core_api_status as enum ('pending', 'sending', 'done', 'failed');

create table sumaclock.core_api_jobs (
    id              bigint      generated always as identity primary key,
    organization_id text        not null check (length(organization_id) between 1 and 200),
    user_id         text        not null check (length(user_id) between 1 and 200),
    next_attempt_at timestamptz not null default now(),
    created_at      timestamptz not null default now(),
    finished_at     timestamptz,
    attempts        integer     not null default 0 check (attempts >= 0),
    last_status     integer,
    status          sumaclock.core_api_status not null default 'pending',
    -- It becomes a header, and so it holds what a header can: visible ASCII.
    idempotency_key text        not null unique check (idempotency_key ~ '^[!-~]{1,255}$'),
    method          text        not null default 'POST' check (method in ('POST', 'PUT', 'PATCH', 'DELETE')),
    -- Relative to SUMACLOCK_CORE_API_URL, and never above it: no host, no fragment, no dots as a segment.
    path            text        not null check (length(path) <= 2000 and path ~ '^/([!"$-.0-~][!"$-~]*)?$'
        and path !~* '[/\\](\.|%2e){1,2}([/\\?]|%2f|%5c|$)'),
    body            jsonb       check (octet_length(body::text) <= 1000000),
    last_error      text,
    response        text,
    constraint times_are_readable check (next_attempt_at >= '1970-01-01 00:00Z' and next_attempt_at < '9999-01-01 00:00Z'
        and created_at >= '1970-01-01 00:00Z' and created_at < '9999-01-01 00:00Z'),
    constraint ended_has_time check ((finished_at is not null) = (status in ('done', 'failed'))),
    constraint sending_is_an_attempt check (status <> 'sending' or attempts > 0),
    constraint failed_has_reason check (status <> 'failed' or last_error is not null)
) with (fillfactor = 70);
comment on table sumaclock.core_api_jobs is 'Requests to core-api, written in the transaction of the work that wants them and delivered at least once.';
comment on column sumaclock.core_api_jobs.idempotency_key is 'Sent as Idempotency-Key with each attempt; a second row with it is refused.';
comment on column sumaclock.core_api_jobs.path is 'Appended to the path of SUMACLOCK_CORE_API_URL; may hold a query.';
comment on column sumaclock.core_api_jobs.next_attempt_at is 'From when the next attempt may begin. While one is under way: when it is given up as lost with its worker.';
comment on column sumaclock.core_api_jobs.attempts is 'Attempts that have begun; with the id it names one attempt, and only that one may write its outcome.';
comment on column sumaclock.core_api_jobs.last_status is 'HTTP status of the last answer; null where there was none.';
comment on column sumaclock.core_api_jobs.response is 'Beginning of the last answer''s body.';

create index core_api_jobs_open on sumaclock.core_api_jobs (next_attempt_at, id) where status in ('pending', 'sending');
create index core_api_jobs_owner on sumaclock.core_api_jobs (organization_id, user_id, id);
create index core_api_jobs_failed on sumaclock.core_api_jobs (finished_at) where status = 'failed';

create table sumaclock.core_api_line (
    the_only_row boolean     primary key default true check (the_only_row),
    failures     integer     not null default 0 check (failures >= 0),
    pauses       integer     not null default 0 check (pauses >= 0),
    width        integer     not null default 1 check (width > 0),
    closed_until timestamptz,
    sender       uuid,
    sender_seen_at timestamptz,
    constraint sender_is_seen check ((sender is null) = (sender_seen_at is null)),
    constraint a_pause_is_counted check ((closed_until is null) = (pauses = 0))
);
insert into sumaclock.core_api_line default values;
comment on table sumaclock.core_api_line is 'One row: how core-api is doing, and which delivery run sends. Its lock puts decisions about sending in order.';
comment on column sumaclock.core_api_line.failures is 'Failed attempts in a row, while the line is open.';
comment on column sumaclock.core_api_line.pauses is 'Pauses in a row; each is longer than the one before.';
comment on column sumaclock.core_api_line.width is 'Attempts that may be under way at once, where the settings allow as many: 1 after a pause, one more with each success.';
comment on column sumaclock.core_api_line.closed_until is 'Nothing is sent before; after it one attempt at a time, until one gets an answer.';
comment on column sumaclock.core_api_line.sender is 'The delivery run that sends, as long as it was seen lately; others leave at once.';

-- Delivery runs are runs of one job, which never fires by the clock. It is made when it is first needed.
create function sumaclock.ask_for_delivery(due timestamptz) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp
as $$
declare
    run_id bigint;
begin
    insert into sumaclock.cron_jobs (id, kind, organization_id, user_id, schedule, enabled)
    values ('a3fbeb71-424d-5b9e-8a81-0ecde17f25f7', 'deliver_core_api', 'sumaclock', 'sumaclock', '0 0 1 1 *', false)
    on conflict (id) do nothing;
    insert into sumaclock.cron_runs (job_id, trigger, scheduled_at, due_at)
    values ('a3fbeb71-424d-5b9e-8a81-0ecde17f25f7', 'request', due, due)
    returning id into run_id;
    notify cron_runs;
    return run_id;
end $$;
comment on function sumaclock.ask_for_delivery(timestamptz) is 'Writes a delivery run for that time and returns its id.';

-- At the commit, not at the insert: another's pending run may count as ours only if nobody can claim it before our row is
-- visible. The lock on that run says so, and is held for the moment of a commit instead of the length of a transaction.
create function sumaclock.core_api_job_is_due() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp
as $$
declare
    wanted timestamptz := greatest(new.next_attempt_at, clock_timestamp());
    run_id bigint;
begin
    perform from sumaclock.cron_runs r
    where r.claimed_by is null and r.job_id = 'a3fbeb71-424d-5b9e-8a81-0ecde17f25f7' and r.due_at <= wanted
    order by r.due_at
    limit 1
    for key share skip locked;
    if found then
        return null;
    end if;
    select r.id into run_id
    from sumaclock.cron_runs r
    where r.claimed_by is null and r.job_id = 'a3fbeb71-424d-5b9e-8a81-0ecde17f25f7'
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
comment on function sumaclock.core_api_job_is_due() is 'Sees to it that a delivery run comes for a new core-api job, or for one that people revive.';

create constraint trigger new_core_api_job_is_due
after insert on sumaclock.core_api_jobs
deferrable initially deferred
for each row when (new.status = 'pending')
execute function sumaclock.core_api_job_is_due();

create constraint trigger revived_core_api_job_is_due
after update of status on sumaclock.core_api_jobs
deferrable initially deferred
for each row when (new.status = 'pending' and old.status in ('done', 'failed'))
execute function sumaclock.core_api_job_is_due();

-- The few pending delivery runs, found at once among however many others.
create index cron_runs_deliveries on sumaclock.cron_runs (due_at)
where claimed_by is null and job_id = 'a3fbeb71-424d-5b9e-8a81-0ecde17f25f7';

do $$
declare app text := current_setting('sumaclock.app_role');
begin
    execute format('grant select, insert, update, delete on sumaclock.core_api_jobs, sumaclock.core_api_line to %I', app);
end $$;
