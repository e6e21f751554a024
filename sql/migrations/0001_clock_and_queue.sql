-- Jobs, runs and workers. Applied by the owner role; the app role gets row rights only, named one by one.

create type sumaclock.run_status as enum ('pending', 'running', 'done', 'failed', 'skipped');
create type sumaclock.run_trigger as enum ('clock', 'manual', 'catch_up', 'request');

create table sumaclock.cron_jobs (
    id              uuid        primary key default gen_random_uuid(),
    kind            text        not null check (kind ~ '^[A-Za-z0-9_.:-]{1,100}$'),
    organization_id text        not null check (length(organization_id) between 1 and 200),
    user_id         text        not null check (length(user_id) between 1 and 200),
    payload         jsonb       not null default '{}',
    schedule        text        not null check (length(schedule) between 1 and 999),
    enabled         boolean     not null default true,
    created_at      timestamptz not null default now(),
    updated_at      timestamptz not null default now()
);
comment on table sumaclock.cron_jobs is 'What is to run and when: kind, owner, payload and a raw UTC schedule. Each enabled row has one clock job in pg_cron.';
comment on column sumaclock.cron_jobs.schedule is 'Five cron fields in UTC, or "N seconds" where pg_cron knows it.';

create index cron_jobs_owner on sumaclock.cron_jobs (organization_id, user_id);

create table sumaclock.workers (
    id             integer     generated always as identity primary key,
    code_version   text        not null,
    requested_at   timestamptz not null default now(),
    started_at     timestamptz,
    heartbeat_at   timestamptz,
    retires_at     timestamptz,
    stopped_at     timestamptz,
    dagster_run_id uuid,
    host           text,
    pid            integer,
    constraint started_is_whole check ((started_at is null) = (heartbeat_at is null) and (started_at is null) = (retires_at is null))
);
comment on table sumaclock.workers is 'Every worker, from its request to its end. A started worker lives while a session holds advisory lock (1937075553, id).';
comment on column sumaclock.workers.retires_at is 'From here on the worker claims nothing more; its replacement is launched before.';

create view sumaclock.worker_sessions as
select l.objid::bigint as worker_id, l.pid
from pg_catalog.pg_locks l
join pg_catalog.pg_database d on d.oid = l.database
where d.datname = current_database() and l.locktype = 'advisory' and l.granted
  and l.classid = 1937075553 and l.objsubid = 2 and l.objid > 0;
comment on view sumaclock.worker_sessions is 'The workers that PostgreSQL sees alive: one row for each session that holds a worker''s lock.';

create index workers_open on sumaclock.workers (id) where stopped_at is null;

create table sumaclock.cron_runs (
    id             bigint      generated always as identity primary key,
    job_id         uuid        not null references sumaclock.cron_jobs (id) on delete cascade,
    scheduled_at   timestamptz not null default date_trunc('minute', now()),
    due_at         timestamptz not null default now(),
    started_at     timestamptz,
    finished_at    timestamptz,
    heartbeat_at   timestamptz,
    dagster_run_id uuid,
    claimed_by     integer,
    status         sumaclock.run_status  not null default 'pending',
    trigger        sumaclock.run_trigger not null default 'clock',
    attempts       smallint    not null default 0 check (attempts >= 0),
    lost           smallint    not null default 0 check (lost >= 0),
    result         jsonb,
    error          text,
    -- What Python's datetime can't hold would stop every worker that reads it.
    constraint times_are_readable check (scheduled_at >= '1970-01-01 00:00Z' and scheduled_at < '9999-01-01 00:00Z'
        and due_at >= '1970-01-01 00:00Z' and due_at < '9999-01-01 00:00Z'),
    constraint pending_is_unclaimed check (status <> 'pending'
        or (claimed_by is null and started_at is null and finished_at is null and result is null)),
    constraint only_pending_is_unclaimed check (status = 'pending' or claimed_by is not null),
    constraint running_is_claimed check (status <> 'running'
        or (started_at is not null and heartbeat_at is not null and finished_at is null and attempts > 0 and result is null)),
    constraint ended_has_time check (finished_at is not null or status in ('pending', 'running')),
    constraint ended_has_reason check (status not in ('failed', 'skipped') or error is not null),
    constraint done_has_no_error check (status <> 'done' or error is null)
)
-- A queue rewrites each row twice within seconds. Free space keeps both new versions on the row's page, and vacuum
-- starts after a fixed number of dead rows: as a share of a table with 30 days of history it would come far too late.
with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
      autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
comment on table sumaclock.cron_runs is 'The work orders: one row a firing, written by pg_cron, claimed and ended by a worker.';
comment on column sumaclock.cron_runs.scheduled_at is 'The minute (UTC) that the run was meant for; lateness counts from here.';
comment on column sumaclock.cron_runs.due_at is 'From when a pending run may be claimed: its firing, or its next try.';
comment on column sumaclock.cron_runs.claimed_by is 'The worker that claimed the run last: null while it is pending, 0 when it ended without a worker.';
comment on column sumaclock.cron_runs.attempts is 'Claims so far; with the id and claimed_by it names one claim.';
comment on column sumaclock.cron_runs.lost is 'How many of the attempts ended with their worker instead of their handler.';

-- Claims look at pending runs only, so their cost does not grow with the history. Pending is told by claimed_by, not
-- by status: a finished run then changes no column that an index knows, and its update touches no index.
create index cron_runs_pending on sumaclock.cron_runs (due_at, id) where claimed_by is null;
-- What a dead worker held is found by its id.
create index cron_runs_claimed on sumaclock.cron_runs (claimed_by) where claimed_by is not null;
create index cron_runs_job on sumaclock.cron_runs (job_id, scheduled_at desc);
-- Runs arrive in the order of time, so a block range index finds "the last 24 hours" at next to no cost a row.
create index cron_runs_scheduled on sumaclock.cron_runs using brin (scheduled_at) with (pages_per_range = 32);

do $$
declare app text := current_setting('sumaclock.app_role');
begin
    execute format('grant usage on schema sumaclock to %I', app);
    execute format('grant select, insert, update, delete on sumaclock.cron_jobs, sumaclock.cron_runs, sumaclock.workers to %I', app);
    execute format('grant select on sumaclock.worker_sessions to %I', app);
end $$;
