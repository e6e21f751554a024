-- Overlap of runs, and system jobs. Applied by the owner role; the app role gets row rights only, named one by one.

alter table sumaclock.cron_jobs add column overlap text not null default 'auto' check (overlap in ('auto', 'skip', 'allow'));
comment on column sumaclock.cron_jobs.overlap is 'A firing while one of the job''s last runs is pending or running: ''skip'' writes none, ''allow'' writes one all the same. ''auto'' skips for schedules in seconds and allows for all others. Tasks always allow.';

create table sumaclock.system_job_runs (
    name        text        not null check (name ~ '^[A-Za-z0-9_.:-]{1,100}$'),
    period      timestamptz not null check (isfinite(period)),
    worker_id   integer,
    attempts    smallint    not null default 1 check (attempts >= 0),
    started_at  timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    result      jsonb,
    error       text,
    primary key (name, period),
    constraint unfinished_has_no_end check (finished_at is not null or (result is null and error is null)),
    constraint failed_has_no_result check (error is null or result is null)
)
with (fillfactor = 80);
comment on table sumaclock.system_job_runs is 'One row for each period of a system job: the worker that inserts it executes it. Who executes holds the advisory lock of the job''s name.';
comment on column sumaclock.system_job_runs.period is 'Beginning of the period by the database''s clock: the epoch''s seconds rounded down to the job''s every_seconds.';
comment on column sumaclock.system_job_runs.worker_id is 'The worker that executes it; null where a worker that was stopped gave it back.';
comment on column sumaclock.system_job_runs.attempts is 'More than one where a worker died with it, and another executes it again within its period.';

do $$
declare app text := current_setting('sumaclock.app_role');
begin
    execute format('grant select, insert, update, delete on sumaclock.system_job_runs to %I', app);
end $$;
