-- Tasks: what people asked for, in their local time. SQL knows no local time: whatever needs it is a run of the task's
-- job, which a worker settles within milliseconds. So each function below writes rows, and one run with the trigger
-- 'request', in its caller's transaction.

create type sumaclock.task_status as enum ('active', 'paused', 'done', 'failed');
create type sumaclock.task_run_status as enum ('done', 'failed', 'skipped');
create type sumaclock.task_run_trigger as enum ('clock', 'heartbeat', 'manual');

create table sumaclock.ai_tasks (
    id                 uuid        primary key default gen_random_uuid(),
    organization_id    text        not null check (length(organization_id) between 1 and 200),
    user_id            text        not null check (length(user_id) between 1 and 200),
    kind               text        not null check (kind ~ '^[A-Za-z0-9_.:-]{1,100}$'),
    title              text        not null default '' check (length(title) <= 500),
    payload            jsonb       not null default '{}',
    cron               text        check (length(cron) between 9 and 255),
    instant            timestamptz check (instant >= '1970-01-01 00:00Z' and instant < '9999-01-01 00:00Z'),
    timezone           text        not null default 'Europe/Madrid' check (length(timezone) between 1 and 64),
    status             sumaclock.task_status not null default 'active',
    status_reason      text,
    next_run_at        timestamptz check (next_run_at >= '1970-01-01 00:00Z' and next_run_at < '9999-01-01 00:00Z'),
    last_scheduled_for timestamptz,
    upcoming           jsonb       not null default '[]',
    zone_data          text,
    cron_job_id        uuid        not null unique references sumaclock.cron_jobs (id),
    deleted_at         timestamptz,
    created_at         timestamptz not null default now(),
    updated_at         timestamptz not null default now(),
    constraint cron_or_instant check (num_nonnulls(cron, instant) = 1),
    constraint instant_is_a_minute check (mod(extract(epoch from instant), 60) = 0),
    constraint next_run_is_a_minute check (mod(extract(epoch from next_run_at), 60) = 0),
    constraint only_active_has_next check (next_run_at is null or (status = 'active' and deleted_at is null)),
    constraint failed_has_reason check (status <> 'failed' or status_reason is not null)
);
comment on table sumaclock.ai_tasks is 'What a person asked for: a kind of work, in local time. Each task has one job of kind ai_task, whose clock job holds its next occurrence.';
comment on column sumaclock.ai_tasks.cron is 'Five fields on the wall clock of timezone; null where the task has one instant.';
comment on column sumaclock.ai_tasks.instant is 'The one minute that the task is meant for; null where it has a cron.';
comment on column sumaclock.ai_tasks.status_reason is 'Why it is paused, done or failed.';
comment on column sumaclock.ai_tasks.next_run_at is 'Its next occurrence (UTC). Null in an active task: a worker is about to place it.';
comment on column sumaclock.ai_tasks.last_scheduled_for is 'Its last occurrence that was executed or skipped.';
comment on column sumaclock.ai_tasks.upcoming is 'Its next ten occurrences when it was placed: at (UTC), local (with offset), change (what a clock change does to it).';
comment on column sumaclock.ai_tasks.zone_data is 'The version of the zone data that it was placed by; null before the first time.';
comment on column sumaclock.ai_tasks.deleted_at is 'A deleted task fires no more and stays as history.';

-- The late ones: active, and their time has passed.
create index ai_tasks_next on sumaclock.ai_tasks (next_run_at) where status = 'active';
create index ai_tasks_owner on sumaclock.ai_tasks (organization_id, user_id);

create table sumaclock.ai_task_runs (
    id              bigint      generated always as identity primary key,
    task_id         uuid        not null references sumaclock.ai_tasks (id) on delete cascade,
    scheduled_for   timestamptz not null,
    trigger         sumaclock.task_run_trigger not null,
    status          sumaclock.task_run_status  not null,
    result          jsonb,
    error           text,
    cron_run_id     bigint      not null,
    idempotency_key text        not null unique,
    started_at      timestamptz not null,
    finished_at     timestamptz not null,
    -- Also the index for a task's runs, newest first.
    constraint once_an_occurrence unique (task_id, scheduled_for),
    constraint error_or_done check ((status = 'done') = (error is null)),
    constraint ends_after_start check (finished_at >= started_at)
);
comment on table sumaclock.ai_task_runs is 'The task runs: one row an occurrence, written in the transaction that did its work.';
comment on column sumaclock.ai_task_runs.scheduled_for is 'The minute (UTC) that it was meant for; for a manual one, the moment when it was asked for.';
comment on column sumaclock.ai_task_runs.cron_run_id is 'The run that executed it. No foreign key: runs are pruned earlier.';
comment on column sumaclock.ai_task_runs.error is 'Why it failed or was skipped.';

-- Task runs arrive in the order of time.
create index ai_task_runs_finished on sumaclock.ai_task_runs using brin (finished_at) with (pages_per_range = 32);

create table sumaclock.preview_requests (
    id         bigint      generated always as identity primary key,
    cron       text,
    instant    timestamptz,
    timezone   text        not null,
    count      integer     not null check (count between 1 and 100),
    language   text        not null,
    created_at timestamptz not null default now(),
    result     jsonb
);
comment on table sumaclock.preview_requests is 'Previews of schedules that are no task yet. A worker answers them and deletes them after a day.';

create index preview_requests_open on sumaclock.preview_requests (id) where result is null;

-- What SQL can know of a schedule. The rest, such as 'FRI-MON' or 31 February, is for the worker to refuse.
create function sumaclock.check_schedule(cron text, instant timestamptz, timezone text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    late constant interval := '1 hour';
begin
    if num_nonnulls(cron, instant) <> 1 then
        raise exception 'A task takes either cron or instant, and % given.', case when cron is null then 'neither was' else 'both were' end
            using errcode = 'invalid_parameter_value', hint = 'Give cron => ''0 9 * * MON'', or instant => ''2030-12-01 09:00+01''.';
    end if;
    if timezone is null or length(timezone) > 64 or timezone !~ '^[A-Za-z][A-Za-z0-9_+/-]*$' then
        raise exception 'timezone % is no name of a time zone.', coalesce(quote_literal(left(timezone, 64)), 'null')
            using errcode = 'invalid_parameter_value', hint = 'Give an IANA name, for example ''Europe/Madrid''.';
    end if;
    begin
        perform now() at time zone timezone;
    exception when invalid_parameter_value then
        raise exception 'timezone ''%'' is not known to PostgreSQL.', timezone
            using errcode = 'invalid_parameter_value', hint = 'Give an IANA name, for example ''Europe/Madrid''.';
    end;
    if length(cron) > 255 then
        raise exception 'cron has % characters and may have 255.', length(cron)
            using errcode = 'invalid_parameter_value', hint = 'Write ranges and steps instead of lists, for example ''*/15 9-17 * * MON-FRI''.';
    end if;
    if cron !~ '^\s*[0-9A-Za-z*,/#-]+(\s+[0-9A-Za-z*,/#-]+){4}\s*$' then
        raise exception 'cron ''%'' does not have exactly five fields of digits, names and * , - / #.', cron
            using errcode = 'invalid_parameter_value',
                  hint = 'Minute, hour, day of month, month and day of week, in local time: for example ''0 9 * * MON-FRI''. Macros such as @daily are not known.';
    end if;
    if instant is not null and (not isfinite(instant) or instant >= '9999-01-01 00:00Z' or mod(extract(epoch from instant), 60) <> 0) then
        raise exception 'instant % is not on a whole minute that can be stored.', instant
            using errcode = 'invalid_parameter_value', hint = 'Cut it to its minute: date_trunc(''minute'', ...).';
    end if;
    if instant < now() - late then
        raise exception 'instant % has passed.', instant
            using errcode = 'invalid_parameter_value', hint = 'One of the last hour runs at once; give a later one.';
    end if;
end $$;
comment on function sumaclock.check_schedule is 'Raises invalid_parameter_value for a schedule that SQL knows to be wrong.';

create function sumaclock.check_task(organization_id text, user_id text, kind text, title text, payload jsonb) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if coalesce(length(organization_id), 0) not between 1 and 200 or coalesce(length(user_id), 0) not between 1 and 200 then
        raise exception 'organization_id and user_id take 1 to 200 characters each.'
            using errcode = 'invalid_parameter_value', hint = 'They name the owner of the task.';
    end if;
    if kind is null or kind !~ '^[A-Za-z0-9_.:-]{1,100}$' then
        raise exception 'kind % is not 1 to 100 letters, digits or _ . : -', coalesce(quote_literal(left(kind, 100)), 'null')
            using errcode = 'invalid_parameter_value', hint = 'Give the name of a task kind, for example ''core_api''.';
    end if;
    if title is null or length(title) > 500 then
        raise exception 'title takes 0 to 500 characters and has %.', coalesce(length(title)::text, 'none: it is null')
            using errcode = 'invalid_parameter_value', hint = 'Shorten it; the payload has room for more.';
    end if;
    if payload is null or octet_length(payload::text) > 1000000 then
        raise exception 'payload takes up to 1,000,000 bytes of JSON and has %.', coalesce(octet_length(payload::text)::text, 'none: it is null')
            using errcode = 'invalid_parameter_value', hint = 'Store the data elsewhere and let the payload name it.';
    end if;
end $$;
comment on function sumaclock.check_task is 'Raises invalid_parameter_value for a task that SQL knows to be wrong.';

create function sumaclock.hold_task(task_id uuid) returns sumaclock.ai_tasks
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    task sumaclock.ai_tasks;
begin
    select * into task from sumaclock.ai_tasks t where t.id = hold_task.task_id for update;
    if task.id is null or task.deleted_at is not null then
        raise exception 'There is no task %.', coalesce(task_id::text, 'null')
            using errcode = 'no_data_found',
                  hint = coalesce('It was deleted at ' || task.deleted_at || '.', 'See sumaclock.ai_tasks for those that exist.');
    end if;
    return task;
end $$;
comment on function sumaclock.hold_task is 'The task, locked. Raises no_data_found where there is none or it was deleted.';

create function sumaclock.request_run(job_id uuid, trigger sumaclock.run_trigger) returns bigint
language sql set search_path = pg_catalog, pg_temp as $$
    select pg_notify('cron_runs', '');
    insert into sumaclock.cron_runs (job_id, trigger, scheduled_at) values (job_id, trigger, now()) returning id;
$$;
comment on function sumaclock.request_run is 'Writes one run of a job for a worker to claim at the commit, and wakes the workers. Returns its id.';

create function sumaclock.create_task(
    organization_id text,
    user_id         text,
    kind            text,
    title           text        default '',
    payload         jsonb       default '{}',
    cron            text        default null,
    instant         timestamptz default null,
    timezone        text        default 'Europe/Madrid'
) returns uuid
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    task constant uuid := gen_random_uuid();
    job uuid;
begin
    perform sumaclock.check_task(organization_id, user_id, kind, title, payload);
    perform sumaclock.check_schedule(cron, instant, timezone);
    -- Disabled until it is placed; a request is executed all the same.
    insert into sumaclock.cron_jobs (kind, organization_id, user_id, payload, schedule, enabled)
    values ('ai_task', create_task.organization_id, create_task.user_id, jsonb_build_object('task_id', task), '0 0 1 1 *', false)
    returning id into job;
    insert into sumaclock.ai_tasks (id, organization_id, user_id, kind, title, payload, cron, instant, timezone, cron_job_id)
    values (task, create_task.organization_id, create_task.user_id, create_task.kind, create_task.title, create_task.payload,
            regexp_replace(btrim(create_task.cron, E' \t\r\n'), '\s+', ' ', 'g'), create_task.instant, create_task.timezone, job);
    perform sumaclock.request_run(job, 'request');
    return task;
end $$;
comment on function sumaclock.create_task is 'Creates a task and returns its id; a worker places it right after the commit. Give cron (five fields, local time of timezone) or instant. An instant of the last hour runs at once. Refused at once: a missing owner, no plain kind, an unknown zone, not five fields, both or neither of cron and instant, an older instant. Whatever else is wrong with a cron makes the task failed, with the reason, as soon as a worker sees it.';

create function sumaclock.update_task(
    task_id  uuid,
    kind     text        default null,
    title    text        default null,
    payload  jsonb       default null,
    cron     text        default null,
    instant  timestamptz default null,
    timezone text        default null
) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    task sumaclock.ai_tasks := sumaclock.hold_task(task_id);
    renewed constant boolean := num_nonnulls(cron, instant) > 0;
    moved constant boolean := renewed or timezone is not null;
    revived constant boolean := (task.status = 'done' and renewed) or (task.status = 'failed' and moved);
begin
    perform sumaclock.check_task(task.organization_id, task.user_id, coalesce(update_task.kind, task.kind),
                                 coalesce(update_task.title, task.title), coalesce(update_task.payload, task.payload));
    if renewed then
        perform sumaclock.check_schedule(cron, instant, coalesce(update_task.timezone, task.timezone));
    elsif moved then
        -- The instant stays as it is, whether it has passed or not.
        perform sumaclock.check_schedule(coalesce(task.cron, '* * * * *'), null, timezone);
    end if;
    update sumaclock.ai_tasks t
    set kind = coalesce(update_task.kind, t.kind),
        title = coalesce(update_task.title, t.title),
        payload = coalesce(update_task.payload, t.payload),
        cron = case when renewed then regexp_replace(btrim(update_task.cron, E' \t\r\n'), '\s+', ' ', 'g') else t.cron end,
        instant = case when renewed then update_task.instant else t.instant end,
        timezone = coalesce(update_task.timezone, t.timezone),
        -- What is over begins anew with a new schedule; what somebody paused stays paused.
        status = case when revived then 'active' else t.status end,
        status_reason = case when revived then null else t.status_reason end,
        next_run_at = case when moved then null else t.next_run_at end,
        zone_data = case when moved then null else t.zone_data end,
        upcoming = case when moved then '[]' else t.upcoming end,
        updated_at = now()
    where t.id = task.id;
    if moved then
        perform sumaclock.request_run(task.cron_job_id, 'request');
    end if;
end $$;
comment on function sumaclock.update_task is 'Changes what is given and leaves the rest. A new cron or instant takes the place of the old one, is computed from now, and never fires an occurrence of the old one; it revives a task that is done or failed (a new timezone alone, one that is failed). Refuses what create_task refuses.';

create function sumaclock.pause_task(task_id uuid, reason text default null) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    task sumaclock.ai_tasks := sumaclock.hold_task(task_id);
begin
    if task.status not in ('active', 'paused') then
        raise exception 'Task % is %, so there is nothing to pause.', task_id, task.status
            using errcode = 'object_not_in_prerequisite_state', hint = 'Only an active task can be paused.';
    end if;
    update sumaclock.ai_tasks t
    set status = 'paused', status_reason = left(reason, 2000), next_run_at = null, upcoming = '[]', updated_at = now()
    where t.id = task.id;
    perform sumaclock.request_run(task.cron_job_id, 'request');
end $$;
comment on function sumaclock.pause_task is 'Stops the task''s firings from the commit on and keeps its history. Pausing a paused task only changes the reason.';

create function sumaclock.resume_task(task_id uuid) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    task sumaclock.ai_tasks := sumaclock.hold_task(task_id);
begin
    if task.status = 'done' then
        raise exception 'Task % is done, so there is nothing to resume.', task_id
            using errcode = 'object_not_in_prerequisite_state', hint = 'Give it a new schedule with update_task, or run it once with run_task_now.';
    end if;
    if task.status <> 'active' and task.instant < now() then
        raise exception 'The instant of task %, %, has passed meanwhile.', task_id, task.instant
            using errcode = 'object_not_in_prerequisite_state', hint = 'Give it another with update_task first, or run it once with run_task_now.';
    end if;
    update sumaclock.ai_tasks t
    set status = 'active', status_reason = null, updated_at = now(),
        next_run_at = case when t.status = 'active' then t.next_run_at end
    where t.id = task.id;
    perform sumaclock.request_run(task.cron_job_id, 'request');
end $$;
comment on function sumaclock.resume_task is 'Lets a paused or failed task fire again, computed from now: what it missed stays missed. Resuming an active task places its clock job again.';

create function sumaclock.delete_task(task_id uuid) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    task sumaclock.ai_tasks := sumaclock.hold_task(task_id);
begin
    update sumaclock.ai_tasks t
    set deleted_at = now(), next_run_at = null, upcoming = '[]', updated_at = now()
    where t.id = task.id;
    perform sumaclock.request_run(task.cron_job_id, 'request');
end $$;
comment on function sumaclock.delete_task is 'Ends a task for good from the commit on. Its rows stay as history; a worker removes its clock job.';

create function sumaclock.run_task_now(task_id uuid) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    return sumaclock.request_run((sumaclock.hold_task(task_id)).cron_job_id, 'manual');
end $$;
comment on function sumaclock.run_task_now is 'Runs the task once, right after the commit and whatever its status, without moving its schedule. Returns the id of the run in cron_runs.';

create function sumaclock.preview_task(task_id uuid, count integer default 10)
returns table (occurrence timestamptz, local_time text, change text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if count is null or count not between 1 and 10 then
        raise exception 'count must be 1 to 10, not %.', coalesce(count::text, 'null')
            using errcode = 'invalid_parameter_value', hint = 'request_preview tells up to 100.';
    end if;
    if not exists (select from sumaclock.ai_tasks t where t.id = preview_task.task_id and t.deleted_at is null) then
        raise exception 'There is no task %.', coalesce(task_id::text, 'null')
            using errcode = 'no_data_found', hint = 'See sumaclock.ai_tasks for those that exist.';
    end if;
    return query
    select (u.line ->> 'at')::timestamptz, u.line ->> 'local', u.line ->> 'change'
    from sumaclock.ai_tasks t
    cross join lateral jsonb_array_elements(t.upcoming) with ordinality as u (line, nr)
    where t.id = preview_task.task_id
    order by u.nr
    limit preview_task.count;
end $$;
comment on function sumaclock.preview_task is 'The task''s next occurrences as they were when it was placed last: in UTC, in local time with its offset, and what a clock change does to them. No rows while a worker has not placed it, and for a task that does not fire.';

create function sumaclock.request_preview(
    cron     text        default null,
    instant  timestamptz default null,
    timezone text        default 'Europe/Madrid',
    count    integer     default 10,
    language text        default 'en'
) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    job constant uuid := '5c5e0000-0000-4000-8000-000000000001';
    request bigint;
begin
    perform sumaclock.check_schedule(cron, instant, timezone);
    if count is null or count not between 1 and 100 then
        raise exception 'count must be 1 to 100, not %.', coalesce(count::text, 'null')
            using errcode = 'invalid_parameter_value', hint = 'Ask again later for what comes after.';
    end if;
    if language is null or language !~ '^[a-z]{2}$' then
        raise exception 'language % is no code of two letters.', coalesce(quote_literal(left(language, 20)), 'null')
            using errcode = 'invalid_parameter_value', hint = 'Give ''en'' or ''es''.';
    end if;
    insert into sumaclock.preview_requests (cron, instant, timezone, count, language)
    values (request_preview.cron, request_preview.instant, request_preview.timezone, request_preview.count, request_preview.language)
    returning id into request;
    -- One job for all requests, which has no clock job.
    insert into sumaclock.cron_jobs (id, kind, organization_id, user_id, schedule, enabled)
    values (job, 'preview_schedules', 'sumaclock', 'sumaclock', '0 0 1 1 *', false)
    on conflict do nothing;
    perform sumaclock.request_run(job, 'request');
    return request;
end $$;
comment on function sumaclock.request_preview is 'Asks a worker for the next occurrences of a schedule that is no task yet. Returns the number to read the answer by, with preview_result, within a second after the commit and for a day.';

create function sumaclock.preview_result(request bigint) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    answer jsonb;
begin
    select coalesce(p.result, '{"status": "pending"}') into answer from sumaclock.preview_requests p where p.id = preview_result.request;
    if answer is null then
        raise exception 'There is no request for a preview %.', coalesce(request::text, 'null')
            using errcode = 'no_data_found', hint = 'It is deleted after a day; ask again with request_preview.';
    end if;
    return answer;
end $$;
comment on function sumaclock.preview_result is 'The answer to request_preview: {"status": "pending"}; or "done" with words and lines (at, local, change); or "failed" with error.';

create function sumaclock.owner_has_access(organization_id text, user_id text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$ select true $$;
comment on function sumaclock.owner_has_access is 'Asked before each task run; anything but true skips it and pauses the task. An app replaces it, as the owner role, by create or replace function with the same arguments.';

do $$
declare
    app text := current_setting('sumaclock.app_role');
    made regprocedure;
begin
    execute format('grant select, insert, update, delete on sumaclock.ai_tasks, sumaclock.ai_task_runs, sumaclock.preview_requests to %I', app);
    for made in
        select p.oid from pg_catalog.pg_proc p
        where p.pronamespace = 'sumaclock'::regnamespace
          and p.proname in ('check_schedule', 'check_task', 'hold_task', 'request_run', 'create_task', 'update_task', 'pause_task', 'resume_task',
                            'delete_task', 'run_task_now', 'preview_task', 'request_preview', 'preview_result', 'owner_has_access')
    loop
        execute format('revoke all on function %s from public', made);
        execute format('grant execute on function %s to %I', made, app);
    end loop;
end $$;
