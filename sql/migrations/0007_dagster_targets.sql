-- Dagster jobs and assets as targets of jobs and tasks. Applied by the owner role; the app role gets row rights only, named one by one.

-- A task run that was handed to Dagster has begun and not ended. The checks name the ends: a new value can't be used in
-- the transaction that adds it.
alter type sumaclock.task_run_status add value 'running' before 'done';

alter table sumaclock.ai_task_runs
    alter column finished_at drop not null,
    drop constraint error_or_done,
    add constraint error_where_not_done check ((error is not null) = (status in ('failed', 'skipped'))),
    add constraint ended_has_time check ((finished_at is not null) = (status in ('done', 'failed', 'skipped')));
comment on table sumaclock.ai_task_runs is 'The task runs: one row an occurrence, written in the transaction that did its work. One that a Dagster run executes is running until that ends.';

create index ai_task_runs_running on sumaclock.ai_task_runs (id) where finished_at is null;

comment on column sumaclock.cron_runs.claimed_by is 'The worker that claimed the run last: null while it is pending, -1 while a Dagster run of its own executes it, 0 when it ended without a worker.';
comment on column sumaclock.cron_runs.dagster_run_id is 'The Dagster run that executes it: its worker''s, or the one that was launched for it.';

create type sumaclock.launch_state as enum ('requested', 'launched', 'ended');
create type sumaclock.launch_outcome as enum ('done', 'failed');

create table sumaclock.dagster_launches (
    id              bigint      generated always as identity primary key,
    cron_run_id     bigint      not null,
    job_id          uuid        not null references sumaclock.cron_jobs (id) on delete cascade,
    task_id         uuid        references sumaclock.ai_tasks (id) on delete cascade,
    scheduled_for   timestamptz not null,
    created_at      timestamptz not null default now(),
    offered_until   timestamptz,
    launched_at     timestamptz,
    ended_at        timestamptz,
    launch_key      uuid        not null unique default gen_random_uuid(),
    dagster_run_id  uuid,
    offers          smallint    not null default 0 check (offers >= 0),
    state           sumaclock.launch_state not null default 'requested',
    outcome         sumaclock.launch_outcome,
    told            boolean     not null default false,
    idempotency_key text        not null check (length(idempotency_key) between 1 and 255),
    organization_id text        not null check (length(organization_id) between 1 and 200),
    user_id         text        not null check (length(user_id) between 1 and 200),
    target          jsonb       not null check (jsonb_typeof(target) = 'object' and octet_length(target::text) <= 1000000),
    result          jsonb,
    error           text,
    constraint launched_has_run check (state <> 'launched' or (dagster_run_id is not null and launched_at is not null)),
    constraint ended_is_whole check ((state = 'ended') = (ended_at is not null) and (state = 'ended') = (outcome is not null)),
    constraint failed_has_reason check ((outcome is not distinct from 'failed') = (error is not null)),
    constraint told_has_ended check (not told or state = 'ended')
) with (fillfactor = 70);
comment on table sumaclock.dagster_launches is 'Dagster runs that are to be launched, are under way or have ended: one row for each time that a run of kind dagster is executed. Written in the transaction that wants it.';
comment on column sumaclock.dagster_launches.cron_run_id is 'The run that it is for. No foreign key: runs are pruned on their own.';
comment on column sumaclock.dagster_launches.scheduled_for is 'The minute (UTC) that it was meant for.';
comment on column sumaclock.dagster_launches.offered_until is 'Until then it counts as being launched. Whoever looks later looks for a Dagster run with its tag first.';
comment on column sumaclock.dagster_launches.launch_key is 'The tag sumaclock/launch of its Dagster run, by which that is found whatever crashed.';
comment on column sumaclock.dagster_launches.offers is 'How often Dagster was asked to launch it.';
comment on column sumaclock.dagster_launches.told is 'Whether the run in cron_runs has taken its outcome.';
comment on column sumaclock.dagster_launches.idempotency_key is 'The key of the run or of the task''s occurrence; one launch of it is open at a time.';
comment on column sumaclock.dagster_launches.target is 'As resolved: job or assets, location, repository, run_config, tags, partition_key.';

-- One at a time for each run and for each occurrence, whoever asks again.
create unique index dagster_launches_run on sumaclock.dagster_launches (cron_run_id) where not told;
create unique index dagster_launches_open on sumaclock.dagster_launches (idempotency_key) where state <> 'ended';
create index dagster_launches_state on sumaclock.dagster_launches (state, id) where state <> 'ended';
create index dagster_launches_task on sumaclock.dagster_launches (task_id) where task_id is not null;
create index dagster_launches_job on sumaclock.dagster_launches (job_id);

do $$
declare app text := current_setting('sumaclock.app_role');
begin
    execute format('grant select, insert, update, delete on sumaclock.dagster_launches to %I', app);
end $$;
