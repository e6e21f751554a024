-- Schema sumaclock after first_boot.sql and all migrations: to be read and compared, not to be run.
-- Written by `python -m tests.dump_schema`; never edited by hand.

CREATE SCHEMA sumaclock;

ALTER SCHEMA sumaclock OWNER TO sumaclock_owner;

CREATE TYPE sumaclock.core_api_status AS ENUM (
    'pending',
    'sending',
    'done',
    'failed'
);

ALTER TYPE sumaclock.core_api_status OWNER TO sumaclock_owner;

CREATE TYPE sumaclock.launch_outcome AS ENUM (
    'done',
    'failed'
);

ALTER TYPE sumaclock.launch_outcome OWNER TO sumaclock_owner;

CREATE TYPE sumaclock.launch_state AS ENUM (
    'requested',
    'launched',
    'ended'
);

ALTER TYPE sumaclock.launch_state OWNER TO sumaclock_owner;

CREATE TYPE sumaclock.run_status AS ENUM (
    'pending',
    'running',
    'done',
    'failed',
    'skipped'
);

ALTER TYPE sumaclock.run_status OWNER TO sumaclock_owner;

CREATE TYPE sumaclock.run_trigger AS ENUM (
    'clock',
    'manual',
    'catch_up',
    'request'
);

ALTER TYPE sumaclock.run_trigger OWNER TO sumaclock_owner;

CREATE TYPE sumaclock.task_run_status AS ENUM (
    'running',
    'done',
    'failed',
    'skipped'
);

ALTER TYPE sumaclock.task_run_status OWNER TO sumaclock_owner;

CREATE TYPE sumaclock.task_run_trigger AS ENUM (
    'clock',
    'heartbeat',
    'manual'
);

ALTER TYPE sumaclock.task_run_trigger OWNER TO sumaclock_owner;

CREATE TYPE sumaclock.task_status AS ENUM (
    'active',
    'paused',
    'done',
    'failed'
);

ALTER TYPE sumaclock.task_status OWNER TO sumaclock_owner;

CREATE FUNCTION sumaclock.allow_once(role name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if (select r.rolsuper from pg_roles r where r.rolname = current_user) then
        execute format('grant connect on database %I to %I', current_database(), role);
    end if;
    execute format('grant usage on schema sumaclock to %I', role);
    execute format('grant select on sumaclock.job_queue, sumaclock.job_errors, sumaclock.job_runners, sumaclock.job_queue_status to %I', role);
    execute format('grant insert (command, search_path, priority, max_attempts, timeout, dedup_key, note, due_at) on sumaclock.job_queue to %I', role);
    execute format('grant execute on function sumaclock.needs_no_transaction, sumaclock.schedule_once, sumaclock.cancel_once, sumaclock.retry_once, '
                   'sumaclock.look_at_queue, sumaclock.claim_command, sumaclock.finish_command, sumaclock.fail_command, '
                   'sumaclock.hold_overdue_commands, sumaclock.clean_session, sumaclock.note_runners to %I', role);
    execute format('grant execute on procedure sumaclock.run_jobs, sumaclock.watch_jobs to %I', role);
end $$;

ALTER FUNCTION sumaclock.allow_once(role name) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.allow_once(role name) IS 'Grants what a role needs to queue commands and to run its own. For the owner role, or for a superuser, who also grants it to connect.';

CREATE FUNCTION sumaclock.ask_for_delivery(due timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

ALTER FUNCTION sumaclock.ask_for_delivery(due timestamp with time zone) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.ask_for_delivery(due timestamp with time zone) IS 'Writes a delivery run for that time and returns its id.';

CREATE FUNCTION sumaclock.cancel_once(jobid bigint) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    found_by name;
    running boolean;
begin
    select q.queued_by, q.claimed_at is not null into found_by, running
    from sumaclock.job_queue q
    where q.jobid = cancel_once.jobid and pg_has_role(session_user, q.queued_by, 'member')
    for update;
    if found_by is null then
        raise exception 'No command % of yours is queued.', coalesce(jobid::text, 'null')
            using errcode = 'no_data_found', hint = 'It may have ended; sumaclock.job_queue_status and sumaclock.job_errors tell.';
    end if;
    if running then
        update sumaclock.job_queue q set cancelled_for = 'request' where q.jobid = cancel_once.jobid;
        return 'cancelling';
    end if;
    delete from sumaclock.job_queue q where q.jobid = cancel_once.jobid;
    return 'removed';
exception when undefined_object then
    -- The role that queued it is gone.
    raise exception 'No command % of yours is queued.', jobid using errcode = 'no_data_found';
end $$;

ALTER FUNCTION sumaclock.cancel_once(jobid bigint) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.cancel_once(jobid bigint) IS 'Takes a command that waits out of the queue (''removed''), or has one that runs cancelled within about 5 seconds and then moved to job_errors (''cancelling'').';

CREATE FUNCTION sumaclock.check_schedule(cron text, instant timestamp with time zone, timezone text) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
end $_$;

ALTER FUNCTION sumaclock.check_schedule(cron text, instant timestamp with time zone, timezone text) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.check_schedule(cron text, instant timestamp with time zone, timezone text) IS 'Raises invalid_parameter_value for a schedule that SQL knows to be wrong.';

CREATE FUNCTION sumaclock.check_task(organization_id text, user_id text, kind text, title text, payload jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
end $_$;

ALTER FUNCTION sumaclock.check_task(organization_id text, user_id text, kind text, title text, payload jsonb) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.check_task(organization_id text, user_id text, kind text, title text, payload jsonb) IS 'Raises invalid_parameter_value for a task that SQL knows to be wrong.';

CREATE TABLE sumaclock.job_queue (
    jobid bigint NOT NULL,
    queued_by name DEFAULT CURRENT_USER NOT NULL,
    command text NOT NULL,
    search_path text DEFAULT current_setting('search_path'::text) NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    max_attempts integer DEFAULT 5 NOT NULL,
    timeout interval,
    dedup_key text,
    note text,
    queued_at timestamp with time zone DEFAULT now() NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    claimed_at timestamp with time zone,
    runner_pid integer,
    runner_began timestamp with time zone,
    cancelled_for text,
    sqlstate text,
    message text,
    detail text,
    hint text,
    context text,
    CONSTRAINT cancelled_is_claimed CHECK (((cancelled_for IS NULL) OR (claimed_at IS NOT NULL))),
    CONSTRAINT claimed_is_whole CHECK ((num_nulls(claimed_at, runner_pid, runner_began) = ANY (ARRAY[0, 3]))),
    CONSTRAINT job_queue_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT job_queue_cancelled_for_check CHECK ((cancelled_for = ANY (ARRAY['request'::text, 'timeout'::text]))),
    CONSTRAINT job_queue_command_check CHECK (((octet_length(command) >= 1) AND (octet_length(command) <= 10000000))),
    CONSTRAINT job_queue_dedup_key_check CHECK (((length(dedup_key) >= 1) AND (length(dedup_key) <= 200))),
    CONSTRAINT job_queue_due_at_check CHECK (((due_at >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (due_at < '9999-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT job_queue_max_attempts_check CHECK (((max_attempts >= 1) AND (max_attempts <= 1000))),
    CONSTRAINT job_queue_note_check CHECK ((length(note) <= 1000)),
    CONSTRAINT job_queue_search_path_check CHECK ((octet_length(search_path) <= 10000)),
    CONSTRAINT job_queue_timeout_check CHECK (((timeout >= '00:00:01'::interval) AND (timeout <= '30 days'::interval)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.0', autovacuum_vacuum_threshold='1000');

ALTER TABLE sumaclock.job_queue OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.job_queue IS 'One-off commands that wait or run. A success deletes its row in the transaction of the command; the last failed attempt moves it to job_errors.';

COMMENT ON COLUMN sumaclock.job_queue.queued_by IS 'Whose command it is, and as whom it runs: the current role of whoever queued it.';

COMMENT ON COLUMN sumaclock.job_queue.search_path IS 'In force while the command runs.';

COMMENT ON COLUMN sumaclock.job_queue.priority IS 'Higher ones first.';

COMMENT ON COLUMN sumaclock.job_queue.due_at IS 'Not before; after a failed attempt, when the next may begin.';

COMMENT ON COLUMN sumaclock.job_queue.attempts IS 'Attempts that have begun, counted in a transaction of their own before the command runs.';

COMMENT ON COLUMN sumaclock.job_queue.runner_pid IS 'With runner_began the session that runs it. When that session is gone, so is the attempt.';

COMMENT ON COLUMN sumaclock.job_queue.cancelled_for IS 'Why the runner is told to cancel the command.';

COMMENT ON COLUMN sumaclock.job_queue.message IS 'With sqlstate, detail, hint and context: how the last attempt failed.';

CREATE FUNCTION sumaclock.claim_command(began timestamp with time zone, at timestamp with time zone) RETURNS sumaclock.job_queue
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    with next as (
        select q.jobid
        from sumaclock.job_queue q
        where q.queued_by = session_user and q.claimed_at is null and q.due_at <= claim_command.at
        order by q.priority desc, q.due_at, q.jobid
        limit 1
        for update skip locked
    )
    update sumaclock.job_queue q
    set attempts = q.attempts + 1, claimed_at = clock_timestamp(), runner_pid = pg_backend_pid(), runner_began = claim_command.began
    from next
    where q.jobid = next.jobid
    returning q.*
$$;

ALTER FUNCTION sumaclock.claim_command(began timestamp with time zone, at timestamp with time zone) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.claim_command(began timestamp with time zone, at timestamp with time zone) IS 'Takes the next command of this session''s role that is due at that time and counts the attempt; null for none.';

CREATE FUNCTION sumaclock.clean_session() RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    execute 'close all';
    execute 'reset all';
    execute 'deallocate all';
    execute 'unlisten *';
    execute 'discard temp';
    execute 'discard sequences';
    perform pg_catalog.pg_advisory_unlock_all();
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
end $$;

ALTER FUNCTION sumaclock.clean_session() OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.clean_session() IS 'Brings the session back to its beginning, under a search_path that nobody else can put anything into.';

CREATE FUNCTION sumaclock.clock_settings() RETURNS TABLE(name text, value text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$ select s.name, s.setting from pg_catalog.pg_settings as s where s.name ~ '^cron[.]' order by s.name $$;

ALTER FUNCTION sumaclock.clock_settings() OWNER TO postgres;

COMMENT ON FUNCTION sumaclock.clock_settings() IS 'The settings of pg_cron, for roles that may not see all settings.';

CREATE FUNCTION sumaclock.core_api_job_is_due() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

ALTER FUNCTION sumaclock.core_api_job_is_due() OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.core_api_job_is_due() IS 'Sees to it that a delivery run comes for a new core-api job, or for one that people revive.';

CREATE FUNCTION sumaclock.create_task(organization_id text, user_id text, kind text, title text DEFAULT ''::text, payload jsonb DEFAULT '{}'::jsonb, cron text DEFAULT NULL::text, instant timestamp with time zone DEFAULT NULL::timestamp with time zone, timezone text DEFAULT 'Europe/Madrid'::text) RETURNS uuid
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

ALTER FUNCTION sumaclock.create_task(organization_id text, user_id text, kind text, title text, payload jsonb, cron text, instant timestamp with time zone, timezone text) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.create_task(organization_id text, user_id text, kind text, title text, payload jsonb, cron text, instant timestamp with time zone, timezone text) IS 'Creates a task and returns its id; a worker places it right after the commit. Give cron (five fields, local time of timezone) or instant. An instant of the last hour runs at once. Refused at once: a missing owner, no plain kind, an unknown zone, not five fields, both or neither of cron and instant, an older instant. Whatever else is wrong with a cron makes the task failed, with the reason, as soon as a worker sees it.';

CREATE FUNCTION sumaclock.delete_task(task_id uuid) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    task sumaclock.ai_tasks := sumaclock.hold_task(task_id);
begin
    update sumaclock.ai_tasks t
    set deleted_at = now(), next_run_at = null, upcoming = '[]', updated_at = now()
    where t.id = task.id;
    perform sumaclock.request_run(task.cron_job_id, 'request');
end $$;

ALTER FUNCTION sumaclock.delete_task(task_id uuid) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.delete_task(task_id uuid) IS 'Ends a task for good from the commit on. Its rows stay as history; a worker removes its clock job.';

CREATE FUNCTION sumaclock.end_attempt(job sumaclock.job_queue, final boolean, sqlstate text, message text, detail text, hint text, context text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if final or job.attempts >= job.max_attempts then
        insert into sumaclock.job_errors (jobid, queued_by, command, search_path, priority, max_attempts, timeout, dedup_key, note,
                                          queued_at, started_at, attempts, sqlstate, message, detail, hint, context)
        values (job.jobid, job.queued_by, job.command, job.search_path, job.priority, job.max_attempts, job.timeout, job.dedup_key, job.note,
                job.queued_at, job.claimed_at, job.attempts, end_attempt.sqlstate, end_attempt.message,
                nullif(end_attempt.detail, ''), nullif(end_attempt.hint, ''), nullif(end_attempt.context, ''));
        delete from sumaclock.job_queue q where q.jobid = job.jobid;
    else
        update sumaclock.job_queue q
        set claimed_at = null, runner_pid = null, runner_began = null, cancelled_for = null,
            due_at = clock_timestamp() + interval '10 seconds', sqlstate = end_attempt.sqlstate, message = end_attempt.message,
            detail = nullif(end_attempt.detail, ''), hint = nullif(end_attempt.hint, ''), context = nullif(end_attempt.context, '')
        where q.jobid = job.jobid;
    end if;
end $$;

ALTER FUNCTION sumaclock.end_attempt(job sumaclock.job_queue, final boolean, sqlstate text, message text, detail text, hint text, context text) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.end_attempt(job sumaclock.job_queue, final boolean, sqlstate text, message text, detail text, hint text, context text) IS 'Writes how an attempt failed: back to the queue, or on to job_errors.';

CREATE FUNCTION sumaclock.fail_command(jobid bigint, attempts integer, sqlstate text, message text, detail text, hint text, context text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    job sumaclock.job_queue;
    -- It manages transactions, or needs to be outside of one: the next attempt would end alike.
    misplaced constant boolean := sqlstate in ('25001', '2D000');
begin
    select q.* into job
    from sumaclock.job_queue q
    where q.jobid = fail_command.jobid and q.attempts = fail_command.attempts
      and q.queued_by = session_user and q.runner_pid = pg_backend_pid()
    for update;
    if job.jobid is null then
        return;
    end if;
    if job.cancelled_for = 'request' and sqlstate = '57014' then
        message := 'Cancelled by cancel_once.';
    elsif job.cancelled_for = 'timeout' and sqlstate = '57014' then
        message := format('Cancelled: the command ran longer than its timeout of %s.', job.timeout);
    end if;
    if misplaced then
        hint := 'Run it as a clock job of its own, which fires once: sumaclock once add --direct ''...''.';
    end if;
    perform sumaclock.end_attempt(job, misplaced or job.cancelled_for = 'request', sqlstate, left(message, 10000), left(detail, 10000), left(hint, 10000), left(context, 10000));
end $$;

ALTER FUNCTION sumaclock.fail_command(jobid bigint, attempts integer, sqlstate text, message text, detail text, hint text, context text) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.fail_command(jobid bigint, attempts integer, sqlstate text, message text, detail text, hint text, context text) IS 'Writes how the attempt of this session failed.';

CREATE FUNCTION sumaclock.finish_command(jobid bigint, attempts integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    delete from sumaclock.job_queue q
    where q.jobid = finish_command.jobid and q.attempts = finish_command.attempts
      and q.queued_by = session_user and q.runner_pid = pg_backend_pid();
    if not found then
        raise exception 'Attempt % of command % is no longer this session''s.', attempts, jobid using errcode = 'object_not_in_prerequisite_state';
    end if;
end $$;

ALTER FUNCTION sumaclock.finish_command(jobid bigint, attempts integer) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.finish_command(jobid bigint, attempts integer) IS 'Takes a command that has succeeded out of the queue, in the transaction of the command.';

CREATE FUNCTION sumaclock.hold_overdue_commands() RETURNS TABLE(pid integer, began timestamp with time zone)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    with overdue as (
        select q.jobid
        from sumaclock.job_queue q
        where q.queued_by = session_user and q.claimed_at is not null
          and (q.cancelled_for is not null or q.claimed_at + q.timeout < clock_timestamp())
        for update skip locked
    )
    update sumaclock.job_queue q
    set cancelled_for = coalesce(q.cancelled_for, 'timeout')
    from overdue
    where q.jobid = overdue.jobid
    returning q.runner_pid, q.runner_began
$$;

ALTER FUNCTION sumaclock.hold_overdue_commands() OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.hold_overdue_commands() IS 'The sessions of commands to cancel. Until this transaction ends, those commands cannot end, so that a cancel never meets the next command.';

CREATE TABLE sumaclock.ai_tasks (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    organization_id text NOT NULL,
    user_id text NOT NULL,
    kind text NOT NULL,
    title text DEFAULT ''::text NOT NULL,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    cron text,
    instant timestamp with time zone,
    timezone text DEFAULT 'Europe/Madrid'::text NOT NULL,
    status sumaclock.task_status DEFAULT 'active'::sumaclock.task_status NOT NULL,
    status_reason text,
    next_run_at timestamp with time zone,
    last_scheduled_for timestamp with time zone,
    upcoming jsonb DEFAULT '[]'::jsonb NOT NULL,
    zone_data text,
    cron_job_id uuid NOT NULL,
    deleted_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ai_tasks_cron_check CHECK (((length(cron) >= 9) AND (length(cron) <= 255))),
    CONSTRAINT ai_tasks_instant_check CHECK (((instant >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (instant < '9999-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT ai_tasks_kind_check CHECK ((kind ~ '^[A-Za-z0-9_.:-]{1,100}$'::text)),
    CONSTRAINT ai_tasks_next_run_at_check CHECK (((next_run_at >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (next_run_at < '9999-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT ai_tasks_organization_id_check CHECK (((length(organization_id) >= 1) AND (length(organization_id) <= 200))),
    CONSTRAINT ai_tasks_timezone_check CHECK (((length(timezone) >= 1) AND (length(timezone) <= 64))),
    CONSTRAINT ai_tasks_title_check CHECK ((length(title) <= 500)),
    CONSTRAINT ai_tasks_user_id_check CHECK (((length(user_id) >= 1) AND (length(user_id) <= 200))),
    CONSTRAINT cron_or_instant CHECK ((num_nonnulls(cron, instant) = 1)),
    CONSTRAINT failed_has_reason CHECK (((status <> 'failed'::sumaclock.task_status) OR (status_reason IS NOT NULL))),
    CONSTRAINT instant_is_a_minute CHECK ((mod(EXTRACT(epoch FROM instant), (60)::numeric) = (0)::numeric)),
    CONSTRAINT next_run_is_a_minute CHECK ((mod(EXTRACT(epoch FROM next_run_at), (60)::numeric) = (0)::numeric)),
    CONSTRAINT only_active_has_next CHECK (((next_run_at IS NULL) OR ((status = 'active'::sumaclock.task_status) AND (deleted_at IS NULL))))
);

ALTER TABLE sumaclock.ai_tasks OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.ai_tasks IS 'What a person asked for: a kind of work, in local time. Each task has one job of kind ai_task, whose clock job holds its next occurrence.';

COMMENT ON COLUMN sumaclock.ai_tasks.cron IS 'Five fields on the wall clock of timezone; null where the task has one instant.';

COMMENT ON COLUMN sumaclock.ai_tasks.instant IS 'The one minute that the task is meant for; null where it has a cron.';

COMMENT ON COLUMN sumaclock.ai_tasks.status_reason IS 'Why it is paused, done or failed.';

COMMENT ON COLUMN sumaclock.ai_tasks.next_run_at IS 'Its next occurrence (UTC). Null in an active task: a worker is about to place it.';

COMMENT ON COLUMN sumaclock.ai_tasks.last_scheduled_for IS 'Its last occurrence that was executed or skipped.';

COMMENT ON COLUMN sumaclock.ai_tasks.upcoming IS 'Its next ten occurrences when it was placed: at (UTC), local (with offset), change (what a clock change does to it).';

COMMENT ON COLUMN sumaclock.ai_tasks.zone_data IS 'The version of the zone data that it was placed by; null before the first time.';

COMMENT ON COLUMN sumaclock.ai_tasks.deleted_at IS 'A deleted task fires no more and stays as history.';

CREATE FUNCTION sumaclock.hold_task(task_id uuid) RETURNS sumaclock.ai_tasks
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

ALTER FUNCTION sumaclock.hold_task(task_id uuid) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.hold_task(task_id uuid) IS 'The task, locked. Raises no_data_found where there is none or it was deleted.';

CREATE FUNCTION sumaclock.job_queue_by_role() RETURNS TABLE(queued_by name, due bigint, oldest_due_at timestamp with time zone, waiting bigint, running bigint, runners bigint, looked_at timestamp with time zone, failed_lately bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    with queued as (
        select q.queued_by, count(*) filter (where q.claimed_at is null and q.due_at <= now()) as due,
               min(q.due_at) filter (where q.claimed_at is null and q.due_at <= now()) as oldest_due_at,
               count(*) filter (where q.claimed_at is null and q.due_at > now()) as waiting,
               count(q.claimed_at) as running
        from sumaclock.job_queue q group by q.queued_by
    ), running as (
        select r.queued_by, count(*) filter (where r.slot > 0) as runners, max(greatest(r.looked_at, r.enabled_at)) as looked_at
        from sumaclock.job_runners r group by r.queued_by
    ), failed as (
        select e.queued_by, count(*) as failed_lately
        from sumaclock.job_errors e where e.failed_at > now() - interval '24 hours' group by e.queued_by
    )
    select queued_by, coalesce(q.due, 0), q.oldest_due_at, coalesce(q.waiting, 0), coalesce(q.running, 0),
           coalesce(r.runners, 0), r.looked_at, coalesce(f.failed_lately, 0)
    from queued q
    full join running r using (queued_by)
    full join failed f using (queued_by)
    order by 1
$$;

ALTER FUNCTION sumaclock.job_queue_by_role() OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.job_queue_by_role() IS 'Counts for each role that queues, without showing whose commands say what: due, waiting for a later time, running, its runners and their last look, failures of the last 24 hours.';

CREATE FUNCTION sumaclock.look_at_queue(slot integer, seen_at timestamp with time zone, pids integer[], began timestamp with time zone[]) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    me constant integer := pg_backend_pid();
    my_beginning constant timestamptz := (select l.began from unnest(look_at_queue.pids, look_at_queue.began) as l (pid, began) where l.pid = me);
    lost sumaclock.job_queue;
begin
    if slot is not null then
        insert into sumaclock.job_runners as r (queued_by, slot, looked_at, runner_pid, runner_began)
        values (session_user, look_at_queue.slot, clock_timestamp(), me, my_beginning)
        on conflict on constraint job_runners_pkey do update
        set looked_at = excluded.looked_at, runner_pid = excluded.runner_pid, runner_began = excluded.runner_began
        where r.runner_pid is null or (r.runner_pid, r.runner_began) = (me, my_beginning) or r.looked_at < seen_at
          and not exists (select from unnest(look_at_queue.pids, look_at_queue.began) as l (pid, began)
                          where (l.pid, l.began) = (r.runner_pid, r.runner_began));
        if not found then
            return false;
        end if;
    end if;
    for lost in
        select q.* from sumaclock.job_queue q
        where q.queued_by = session_user and q.claimed_at < seen_at
          and not exists (select from unnest(look_at_queue.pids, look_at_queue.began) as l (pid, began)
                          where (l.pid, l.began) = (q.runner_pid, q.runner_began))
        for update skip locked
    loop
        perform sumaclock.end_attempt(lost, lost.cancelled_for = 'request', '08006',
            format('The session of attempt %s ended before its command did.', lost.attempts),
            format('Process %s, from %s on. It was killed or crashed, the server restarted, or the transaction could not be committed.', lost.runner_pid, lost.claimed_at),
            format('pg_cron may have noted why: select status, return_message from cron.job_run_details where job_pid = %s order by runid desc limit 1;', lost.runner_pid), null);
    end loop;
    return true;
end $$;

ALTER FUNCTION sumaclock.look_at_queue(slot integer, seen_at timestamp with time zone, pids integer[], began timestamp with time zone[]) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.look_at_queue(slot integer, seen_at timestamp with time zone, pids integer[], began timestamp with time zone[]) IS 'Notes that a runner looks, and ends the attempts of sessions that are gone. False: another session has this slot.';

CREATE FUNCTION sumaclock.needs_no_transaction(command text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    opening text := left(command, 20000);
begin
    opening := regexp_replace(opening, '^(\s|--[^\n]*(\n|$)|/\*([^*]|\*+[^*/])*\*+/)+', '');
    return opening ~* '^(vacuum|begin|commit|end|rollback|abort|savepoint|release)\M'
        or opening ~* '^(start\s+transaction|prepare\s+transaction|discard\s+all|alter\s+system)\M'
        or opening ~* '^(create|drop)\s+(database|tablespace|subscription)\M'
        or opening ~* '^alter\s+database\s+\S+\s+set\s+tablespace\M'
        or opening ~* '^(create\s+(unique\s+)?index|drop\s+index)\s+concurrently\M'
        or opening ~* '^reindex\s+(\([^)]*\)\s*)?(database|system|schema)\M'
        or opening ~* '^reindex\M[^;]*\mconcurrently\M'
        or opening ~* '^alter\s+table\M[^;]*\mdetach\s+partition\M[^;]*\mconcurrently\M'
        or opening ~* '^cluster\s*(;|$)';
end $_$;

ALTER FUNCTION sumaclock.needs_no_transaction(command text) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.needs_no_transaction(command text) IS 'Whether a command begins like one that manages transactions or cannot run inside one, such as VACUUM.';

CREATE FUNCTION sumaclock.note_runners(role name, slots integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if not pg_has_role(session_user, role, 'member') then
        raise exception 'Role % is no member of role %.', quote_ident(session_user), quote_ident(role)
            using errcode = 'insufficient_privilege', hint = 'Connect as that role, or as a superuser.';
    end if;
    delete from sumaclock.job_runners r where r.queued_by = note_runners.role and (r.slot > slots or slots = 0);
    insert into sumaclock.job_runners (queued_by, slot)
    select note_runners.role, s from generate_series(0, slots) as s where slots > 0
    on conflict on constraint job_runners_pkey do update set enabled_at = excluded.enabled_at;
end $$;

ALTER FUNCTION sumaclock.note_runners(role name, slots integer) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.note_runners(role name, slots integer) IS 'Notes that a role has this many runners, and a watcher; 0 for none any more.';

CREATE FUNCTION sumaclock.oldest_transaction() RETURNS TABLE(seconds double precision, who text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select extract(epoch from clock_timestamp() - held.since)::double precision, held.who
    from (
        select a.xact_start as since,
               format('process %s, role %s, database %s', a.pid, coalesce(a.usename::text, '-'), coalesce(a.datname::text, '-')) as who
        from pg_catalog.pg_stat_activity as a
        where (a.backend_xmin is not null or a.backend_xid is not null)
          and a.pid <> pg_backend_pid() and a.backend_type <> 'autovacuum worker'
        union all
        select p.prepared, format('prepared transaction %s, role %s, database %s', p.gid, p.owner, p.database)
        from pg_catalog.pg_prepared_xacts as p
    ) as held
    where held.since is not null
    order by held.since
    limit 1
$$;

ALTER FUNCTION sumaclock.oldest_transaction() OWNER TO postgres;

COMMENT ON FUNCTION sumaclock.oldest_transaction() IS 'The transaction that holds back vacuum most: its age in seconds, and whose it is.';

CREATE FUNCTION sumaclock.owner_has_access(organization_id text, user_id text) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$ select true $$;

ALTER FUNCTION sumaclock.owner_has_access(organization_id text, user_id text) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.owner_has_access(organization_id text, user_id text) IS 'Asked before each task run; anything but true skips it and pauses the task. An app replaces it, as the owner role, by create or replace function with the same arguments.';

CREATE FUNCTION sumaclock.pause_task(task_id uuid, reason text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

ALTER FUNCTION sumaclock.pause_task(task_id uuid, reason text) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.pause_task(task_id uuid, reason text) IS 'Stops the task''s firings from the commit on and keeps its history. Pausing a paused task only changes the reason.';

CREATE FUNCTION sumaclock.preview_result(request bigint) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

ALTER FUNCTION sumaclock.preview_result(request bigint) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.preview_result(request bigint) IS 'The answer to request_preview: {"status": "pending"}; or "done" with words and lines (at, local, change); or "failed" with error.';

CREATE FUNCTION sumaclock.preview_task(task_id uuid, count integer DEFAULT 10) RETURNS TABLE(occurrence timestamp with time zone, local_time text, change text)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

ALTER FUNCTION sumaclock.preview_task(task_id uuid, count integer) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.preview_task(task_id uuid, count integer) IS 'The task''s next occurrences as they were when it was placed last: in UTC, in local time with its offset, and what a clock change does to them. No rows while a worker has not placed it, and for a task that does not fire.';

CREATE FUNCTION sumaclock.prune_job_errors(days integer, most integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    deleted integer;
begin
    if days is null or days < 1 then
        raise exception 'days must be 1 or more, not %.', coalesce(days::text, 'null') using errcode = 'invalid_parameter_value';
    end if;
    delete from sumaclock.job_errors e
    where e.jobid in (select o.jobid from sumaclock.job_errors o where o.failed_at < now() - days * interval '1 day'
                      order by o.failed_at limit most for update skip locked);
    get diagnostics deleted = row_count;
    return deleted;
end $$;

ALTER FUNCTION sumaclock.prune_job_errors(days integer, most integer) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.prune_job_errors(days integer, most integer) IS 'Deletes up to `most` failed commands, of all roles, that failed longer than `days` ago. Returns how many.';

CREATE FUNCTION sumaclock.request_preview(cron text DEFAULT NULL::text, instant timestamp with time zone DEFAULT NULL::timestamp with time zone, timezone text DEFAULT 'Europe/Madrid'::text, count integer DEFAULT 10, language text DEFAULT 'en'::text) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
end $_$;

ALTER FUNCTION sumaclock.request_preview(cron text, instant timestamp with time zone, timezone text, count integer, language text) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.request_preview(cron text, instant timestamp with time zone, timezone text, count integer, language text) IS 'Asks a worker for the next occurrences of a schedule that is no task yet. Returns the number to read the answer by, with preview_result, within a second after the commit and for a day.';

CREATE FUNCTION sumaclock.request_run(job_id uuid, trigger sumaclock.run_trigger) RETURNS bigint
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select pg_notify('cron_runs', '');
    insert into sumaclock.cron_runs (job_id, trigger, scheduled_at) values (job_id, trigger, now()) returning id;
$$;

ALTER FUNCTION sumaclock.request_run(job_id uuid, trigger sumaclock.run_trigger) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.request_run(job_id uuid, trigger sumaclock.run_trigger) IS 'Writes one run of a job for a worker to claim at the commit, and wakes the workers. Returns its id.';

CREATE FUNCTION sumaclock.resume_task(task_id uuid) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

ALTER FUNCTION sumaclock.resume_task(task_id uuid) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.resume_task(task_id uuid) IS 'Lets a paused or failed task fire again, computed from now: what it missed stays missed. Resuming an active task places its clock job again.';

CREATE FUNCTION sumaclock.retry_once(jobid bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    failed sumaclock.job_errors;
    queued bigint;
begin
    delete from sumaclock.job_errors e
    where e.jobid = retry_once.jobid and exists (select from pg_roles r where r.rolname = e.queued_by and pg_has_role(session_user, r.oid, 'member'))
    returning * into failed;
    if failed.jobid is null then
        raise exception 'No command % of yours has failed.', coalesce(jobid::text, 'null')
            using errcode = 'no_data_found', hint = 'See sumaclock.job_errors for those that have.';
    end if;
    insert into sumaclock.job_queue (queued_by, command, search_path, priority, max_attempts, timeout, dedup_key, note)
    values (failed.queued_by, failed.command, failed.search_path, failed.priority, failed.max_attempts, failed.timeout, failed.dedup_key, failed.note)
    on conflict do nothing
    returning job_queue.jobid into queued;
    if queued is null then
        raise exception 'Command % has the dedup_key %, under which another is queued.', jobid, quote_literal(failed.dedup_key)
            using errcode = 'unique_violation', hint = 'Wait until that one has ended, or leave it to that one.';
    end if;
    return queued;
end $$;

ALTER FUNCTION sumaclock.retry_once(jobid bigint) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.retry_once(jobid bigint) IS 'Queues a command of job_errors again, with all its attempts. Returns its new jobid.';

CREATE PROCEDURE sumaclock.run_jobs(IN slot integer DEFAULT NULL::integer, IN look_for interval DEFAULT '00:00:00'::interval)
    LANGUAGE plpgsql
    AS $$
declare
    began timestamptz;
    stops timestamptz;
    seen_at timestamptz;
    mine boolean;
    pids integer[];
    beginnings timestamptz[];
    my_beginning timestamptz;
    job sumaclock.job_queue;
    next sumaclock.job_queue;
    old boolean := false;
    failed boolean;
    code text;
    message text;
    detail text;
    hint text;
    context text;
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
    if current_user <> session_user then
        raise exception 'run_jobs runs the commands of the role that the session was opened as, which is not the current one (%).', current_user
            using errcode = 'object_not_in_prerequisite_state', hint = 'RESET ROLE first.';
    end if;
    began := clock_timestamp();
    stops := date_trunc('minute', began) + look_for;
    loop
        perform pg_stat_clear_snapshot();
        seen_at := clock_timestamp();
        select array_agg(a.pid), array_agg(a.backend_start), max(a.backend_start) filter (where a.pid = pg_backend_pid())
        into pids, beginnings, my_beginning
        from pg_stat_activity a
        where a.usename = session_user and a.datname = current_database();
        mine := sumaclock.look_at_queue(slot, seen_at, pids, beginnings);
        commit;
        exit when not mine;
        loop
            if next.jobid is null then
                -- A claim skips what others have claimed meanwhile, which no other isolation lets it.
                set transaction isolation level read committed;
                next := sumaclock.claim_command(my_beginning, clock_timestamp());
                commit;
            end if;
            exit when next.jobid is null;
            job := next;
            next := null;
            failed := false;
            begin
                perform set_config('search_path', job.search_path, true);
                execute job.command;
                execute 'set constraints all immediate';
                -- Whatever role and path the command has left behind.
                execute 'set session authorization default';
                execute 'reset role';
                perform sumaclock.clean_session();
                perform sumaclock.finish_command(job.jobid, job.attempts);
            exception when query_canceled or assert_failure or others then
                failed := true;
                get stacked diagnostics code = returned_sqlstate, message = message_text, detail = pg_exception_detail,
                                        hint = pg_exception_hint, context = pg_exception_context;
            end;
            if failed then
                perform sumaclock.fail_command(job.jobid, job.attempts, code, message, detail, hint, context);
                commit;
                perform sumaclock.clean_session();
            end if;
            -- A session that has run for long is heavy with what it remembers. The next firing goes on.
            old := clock_timestamp() > began + interval '5 minutes';
            if not old and current_setting('transaction_isolation') = 'read committed' then
                -- The end of one and the claim of the next are one commit, and so half as many.
                next := sumaclock.claim_command(my_beginning, clock_timestamp());
            end if;
            commit;
            exit when old;
        end loop;
        exit when old or clock_timestamp() + interval '5 seconds' > stops;
        perform pg_sleep(5);
        commit;
    end loop;
end $$;

ALTER PROCEDURE sumaclock.run_jobs(IN slot integer, IN look_for interval) OWNER TO sumaclock_owner;

COMMENT ON PROCEDURE sumaclock.run_jobs(IN slot integer, IN look_for interval) IS 'Runs the due commands of the role that the session was opened as, one after the other, each in a transaction of its own, and resets the session after each. slot: only one session a slot. look_for: until then in its minute, it looks again every 5 seconds.';

CREATE FUNCTION sumaclock.run_task_now(task_id uuid) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    return sumaclock.request_run((sumaclock.hold_task(task_id)).cron_job_id, 'manual');
end $$;

ALTER FUNCTION sumaclock.run_task_now(task_id uuid) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.run_task_now(task_id uuid) IS 'Runs the task once, right after the commit and whatever its status, without moving its schedule. Returns the id of the run in cron_runs.';

CREATE FUNCTION sumaclock.schedule_once(command text, max_attempts integer DEFAULT 5, run_after timestamp with time zone DEFAULT NULL::timestamp with time zone, priority integer DEFAULT 0, timeout interval DEFAULT NULL::interval, dedup_key text DEFAULT NULL::text, note text DEFAULT NULL::text, search_path text DEFAULT current_setting('search_path'::text)) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    queued bigint;
    looked timestamptz;
begin
    if command is null or octet_length(command) not between 1 and 10000000 or command ~ '^\s*$' then
        raise exception 'command takes 1 to 10,000,000 bytes of SQL and has %.', coalesce(octet_length(command)::text, 'none: it is null')
            using errcode = 'invalid_parameter_value', hint = 'Put a long one into a function, and queue the call.';
    end if;
    if sumaclock.needs_no_transaction(command) then
        raise exception 'Commands of the queue run inside a transaction, and this one begins like one that cannot: "%".', left(command, 100)
            using errcode = 'invalid_parameter_value',
                  hint = 'Run it as a clock job of its own, which fires once: sumaclock once add --direct ''...''. docs/one-off-commands.md says how to do so in SQL.';
    end if;
    if max_attempts is null or max_attempts not between 1 and 1000 then
        raise exception 'max_attempts must be 1 to 1000, not %.', coalesce(max_attempts::text, 'null')
            using errcode = 'invalid_parameter_value', hint = 'Leave it out for 5.';
    end if;
    if priority is null then
        raise exception 'priority must be a number, not null.' using errcode = 'invalid_parameter_value', hint = 'Leave it out for 0; higher ones run first.';
    end if;
    if timeout < interval '1 second' or timeout > interval '30 days' then
        raise exception 'timeout must be 1 second to 30 days, not %.', timeout
            using errcode = 'invalid_parameter_value', hint = 'Leave it out for none.';
    end if;
    if not isfinite(run_after) or run_after < '1970-01-01 00:00Z' or run_after >= '9999-01-01 00:00Z' then
        raise exception 'run_after must be a time from 1970 to 9998, not %.', run_after
            using errcode = 'invalid_parameter_value', hint = 'Leave it out for now.';
    end if;
    if length(dedup_key) not between 1 and 200 or length(note) > 1000 then
        raise exception 'dedup_key takes 1 to 200 characters, and note up to 1,000.'
            using errcode = 'invalid_parameter_value', hint = 'Shorten it; md5(...) makes a key of anything.';
    end if;
    if octet_length(search_path) > 10000 then
        raise exception 'search_path takes up to 10,000 bytes.' using errcode = 'invalid_parameter_value', hint = 'Name the schemas in the command.';
    end if;

    select max(greatest(r.looked_at, r.enabled_at)) into looked from sumaclock.job_runners r where r.queued_by = current_user;
    if looked is null then
        raise exception 'Role % has no runners, so nothing would ever run its commands.', quote_ident(current_user)
            using errcode = 'object_not_in_prerequisite_state',
                  hint = format('Make them: `sumaclock once enable` for the app role, `sumaclock once enable --role %s` for another.', quote_ident(current_user));
    end if;
    if looked < clock_timestamp() - interval '2 minutes' then
        raise warning 'The command is queued, but no runner of role % has looked at the queue since %.', quote_ident(current_user), looked
            using hint = 'Is pg_cron running? `sumaclock doctor` says, and `sumaclock once enable` makes the runners anew.';
    end if;

    loop
        insert into sumaclock.job_queue (command, search_path, priority, max_attempts, timeout, dedup_key, note, due_at)
        values (schedule_once.command, coalesce(schedule_once.search_path, ''), schedule_once.priority, schedule_once.max_attempts,
                schedule_once.timeout, schedule_once.dedup_key, schedule_once.note, coalesce(schedule_once.run_after, now()))
        on conflict do nothing
        returning jobid into queued;
        exit when queued is not null;
        select q.jobid into queued from sumaclock.job_queue q where q.queued_by = current_user and q.dedup_key = schedule_once.dedup_key;
        exit when queued is not null;
        if pg_catalog.current_setting('transaction_isolation') <> 'read committed' then
            raise exception 'Another transaction has just queued a command with dedup_key %.', quote_literal(dedup_key)
                using errcode = 'serialization_failure', hint = 'Try the transaction again.';
        end if;
    end loop;
    return queued;
end $_$;

ALTER FUNCTION sumaclock.schedule_once(command text, max_attempts integer, run_after timestamp with time zone, priority integer, timeout interval, dedup_key text, note text, search_path text) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.schedule_once(command text, max_attempts integer, run_after timestamp with time zone, priority integer, timeout interval, dedup_key text, note text, search_path text) IS 'Queues a command, to run once in the background as the current role, within about 5 seconds after the commit or after run_after. It runs in a transaction of its own, under the caller''s search_path; failed attempts are repeated at least 10 seconds apart up to max_attempts, then job_errors has it. With a dedup_key that is queued or running already, nothing is queued, and the jobid is that one''s. Returns the jobid.';

CREATE FUNCTION sumaclock.update_task(task_id uuid, kind text DEFAULT NULL::text, title text DEFAULT NULL::text, payload jsonb DEFAULT NULL::jsonb, cron text DEFAULT NULL::text, instant timestamp with time zone DEFAULT NULL::timestamp with time zone, timezone text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

ALTER FUNCTION sumaclock.update_task(task_id uuid, kind text, title text, payload jsonb, cron text, instant timestamp with time zone, timezone text) OWNER TO sumaclock_owner;

COMMENT ON FUNCTION sumaclock.update_task(task_id uuid, kind text, title text, payload jsonb, cron text, instant timestamp with time zone, timezone text) IS 'Changes what is given and leaves the rest. A new cron or instant takes the place of the old one, is computed from now, and never fires an occurrence of the old one; it revives a task that is done or failed (a new timezone alone, one that is failed). Refuses what create_task refuses.';

CREATE PROCEDURE sumaclock.watch_jobs(IN look_for interval DEFAULT '00:00:00'::interval)
    LANGUAGE plpgsql
    AS $$
declare
    stops timestamptz;
    seen_at timestamptz;
    mine boolean;
    pids integer[];
    beginnings timestamptz[];
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
    if current_user <> session_user then
        raise exception 'watch_jobs watches the commands of the role that the session was opened as, which is not the current one (%).', current_user
            using errcode = 'object_not_in_prerequisite_state', hint = 'RESET ROLE first.';
    end if;
    stops := date_trunc('minute', clock_timestamp()) + look_for;
    loop
        perform pg_stat_clear_snapshot();
        seen_at := clock_timestamp();
        select array_agg(a.pid), array_agg(a.backend_start)
        into pids, beginnings
        from pg_stat_activity a
        where a.usename = session_user and a.datname = current_database();
        mine := sumaclock.look_at_queue(0, seen_at, pids, beginnings);
        commit;
        exit when not mine;
        perform pg_cancel_backend(a.pid)
        from sumaclock.hold_overdue_commands() as o
        join pg_stat_activity a on a.pid = o.pid and a.backend_start = o.began;
        commit;
        exit when clock_timestamp() + interval '5 seconds' > stops;
        perform pg_sleep(5);
        commit;
    end loop;
end $$;

ALTER PROCEDURE sumaclock.watch_jobs(IN look_for interval) OWNER TO sumaclock_owner;

COMMENT ON PROCEDURE sumaclock.watch_jobs(IN look_for interval) IS 'Cancels the commands of the session''s role that run longer than their timeout or were cancelled, and notices lost sessions. look_for: as in run_jobs.';

CREATE TABLE sumaclock.ai_task_runs (
    id bigint NOT NULL,
    task_id uuid NOT NULL,
    scheduled_for timestamp with time zone NOT NULL,
    trigger sumaclock.task_run_trigger NOT NULL,
    status sumaclock.task_run_status NOT NULL,
    result jsonb,
    error text,
    cron_run_id bigint NOT NULL,
    idempotency_key text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT ended_has_time CHECK (((finished_at IS NOT NULL) = (status = ANY (ARRAY['done'::sumaclock.task_run_status, 'failed'::sumaclock.task_run_status, 'skipped'::sumaclock.task_run_status])))),
    CONSTRAINT ends_after_start CHECK ((finished_at >= started_at)),
    CONSTRAINT error_where_not_done CHECK (((error IS NOT NULL) = (status = ANY (ARRAY['failed'::sumaclock.task_run_status, 'skipped'::sumaclock.task_run_status]))))
);

ALTER TABLE sumaclock.ai_task_runs OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.ai_task_runs IS 'The task runs: one row an occurrence, written in the transaction that did its work. One that a Dagster run executes is running until that ends.';

COMMENT ON COLUMN sumaclock.ai_task_runs.scheduled_for IS 'The minute (UTC) that it was meant for; for a manual one, the moment when it was asked for.';

COMMENT ON COLUMN sumaclock.ai_task_runs.error IS 'Why it failed or was skipped.';

COMMENT ON COLUMN sumaclock.ai_task_runs.cron_run_id IS 'The run that executed it. No foreign key: runs are pruned earlier.';

ALTER TABLE sumaclock.ai_task_runs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sumaclock.ai_task_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sumaclock.clock_slots (
    id uuid NOT NULL,
    schedule text NOT NULL,
    placed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT clock_slots_schedule_check CHECK (((length(schedule) >= 1) AND (length(schedule) <= 999)))
);

ALTER TABLE sumaclock.clock_slots OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.clock_slots IS 'The slots: schedules whose jobs share one clock job. A row says that its clock job is in place in pg_cron.';

COMMENT ON COLUMN sumaclock.clock_slots.id IS 'UUID version 5 of the schedule, so that it is known without a look.';

CREATE TABLE sumaclock.core_api_jobs (
    id bigint NOT NULL,
    organization_id text NOT NULL,
    user_id text NOT NULL,
    next_attempt_at timestamp with time zone DEFAULT now() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    attempts integer DEFAULT 0 NOT NULL,
    last_status integer,
    status sumaclock.core_api_status DEFAULT 'pending'::sumaclock.core_api_status NOT NULL,
    idempotency_key text NOT NULL,
    method text DEFAULT 'POST'::text NOT NULL,
    path text NOT NULL,
    body jsonb,
    last_error text,
    response text,
    CONSTRAINT core_api_jobs_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT core_api_jobs_body_check CHECK ((octet_length((body)::text) <= 1000000)),
    CONSTRAINT core_api_jobs_idempotency_key_check CHECK ((idempotency_key ~ '^[!-~]{1,255}$'::text)),
    CONSTRAINT core_api_jobs_method_check CHECK ((method = ANY (ARRAY['POST'::text, 'PUT'::text, 'PATCH'::text, 'DELETE'::text]))),
    CONSTRAINT core_api_jobs_organization_id_check CHECK (((length(organization_id) >= 1) AND (length(organization_id) <= 200))),
    CONSTRAINT core_api_jobs_path_check CHECK (((length(path) <= 2000) AND (path ~ '^/([!"$-.0-~][!"$-~]*)?$'::text) AND (path !~* '[/\\](\.|%2e){1,2}([/\\?]|%2f|%5c|$)'::text))),
    CONSTRAINT core_api_jobs_user_id_check CHECK (((length(user_id) >= 1) AND (length(user_id) <= 200))),
    CONSTRAINT ended_has_time CHECK (((finished_at IS NOT NULL) = (status = ANY (ARRAY['done'::sumaclock.core_api_status, 'failed'::sumaclock.core_api_status])))),
    CONSTRAINT failed_has_reason CHECK (((status <> 'failed'::sumaclock.core_api_status) OR (last_error IS NOT NULL))),
    CONSTRAINT sending_is_an_attempt CHECK (((status <> 'sending'::sumaclock.core_api_status) OR (attempts > 0))),
    CONSTRAINT times_are_readable CHECK (((next_attempt_at >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (next_attempt_at < '9999-01-01 00:00:00+00'::timestamp with time zone) AND (created_at >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (created_at < '9999-01-01 00:00:00+00'::timestamp with time zone)))
)
WITH (fillfactor='70');

ALTER TABLE sumaclock.core_api_jobs OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.core_api_jobs IS 'Requests to core-api, written in the transaction of the work that wants them and delivered at least once.';

COMMENT ON COLUMN sumaclock.core_api_jobs.next_attempt_at IS 'From when the next attempt may begin. While one is under way: when it is given up as lost with its worker.';

COMMENT ON COLUMN sumaclock.core_api_jobs.attempts IS 'Attempts that have begun; with the id it names one attempt, and only that one may write its outcome.';

COMMENT ON COLUMN sumaclock.core_api_jobs.last_status IS 'HTTP status of the last answer; null where there was none.';

COMMENT ON COLUMN sumaclock.core_api_jobs.idempotency_key IS 'Sent as Idempotency-Key with each attempt; a second row with it is refused.';

COMMENT ON COLUMN sumaclock.core_api_jobs.path IS 'Appended to the path of SUMACLOCK_CORE_API_URL; may hold a query.';

COMMENT ON COLUMN sumaclock.core_api_jobs.response IS 'Beginning of the last answer''s body.';

ALTER TABLE sumaclock.core_api_jobs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sumaclock.core_api_jobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sumaclock.core_api_line (
    the_only_row boolean DEFAULT true NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    pauses integer DEFAULT 0 NOT NULL,
    width integer DEFAULT 1 NOT NULL,
    closed_until timestamp with time zone,
    sender uuid,
    sender_seen_at timestamp with time zone,
    CONSTRAINT a_pause_is_counted CHECK (((closed_until IS NULL) = (pauses = 0))),
    CONSTRAINT core_api_line_failures_check CHECK ((failures >= 0)),
    CONSTRAINT core_api_line_pauses_check CHECK ((pauses >= 0)),
    CONSTRAINT core_api_line_the_only_row_check CHECK (the_only_row),
    CONSTRAINT core_api_line_width_check CHECK ((width > 0)),
    CONSTRAINT sender_is_seen CHECK (((sender IS NULL) = (sender_seen_at IS NULL)))
);

ALTER TABLE sumaclock.core_api_line OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.core_api_line IS 'One row: how core-api is doing, and which delivery run sends. Its lock puts decisions about sending in order.';

COMMENT ON COLUMN sumaclock.core_api_line.failures IS 'Failed attempts in a row, while the line is open.';

COMMENT ON COLUMN sumaclock.core_api_line.pauses IS 'Pauses in a row; each is longer than the one before.';

COMMENT ON COLUMN sumaclock.core_api_line.width IS 'Attempts that may be under way at once, where the settings allow as many: 1 after a pause, one more with each success.';

COMMENT ON COLUMN sumaclock.core_api_line.closed_until IS 'Nothing is sent before; after it one attempt at a time, until one gets an answer.';

COMMENT ON COLUMN sumaclock.core_api_line.sender IS 'The delivery run that sends, as long as it was seen lately; others leave at once.';

CREATE TABLE sumaclock.cron_jobs (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    kind text NOT NULL,
    organization_id text NOT NULL,
    user_id text NOT NULL,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    schedule text NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    catch_up text DEFAULT 'one'::text NOT NULL,
    overlap text DEFAULT 'auto'::text NOT NULL,
    slot_since timestamp with time zone,
    CONSTRAINT cron_jobs_catch_up_check CHECK ((catch_up = ANY (ARRAY['one'::text, 'none'::text]))),
    CONSTRAINT cron_jobs_kind_check CHECK ((kind ~ '^[A-Za-z0-9_.:-]{1,100}$'::text)),
    CONSTRAINT cron_jobs_organization_id_check CHECK (((length(organization_id) >= 1) AND (length(organization_id) <= 200))),
    CONSTRAINT cron_jobs_overlap_check CHECK ((overlap = ANY (ARRAY['auto'::text, 'skip'::text, 'allow'::text]))),
    CONSTRAINT cron_jobs_schedule_check CHECK (((length(schedule) >= 1) AND (length(schedule) <= 999))),
    CONSTRAINT cron_jobs_slot_since_check CHECK (isfinite(slot_since)),
    CONSTRAINT cron_jobs_user_id_check CHECK (((length(user_id) >= 1) AND (length(user_id) <= 200)))
);

ALTER TABLE sumaclock.cron_jobs OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.cron_jobs IS 'What is to run and when: kind, owner, payload and a raw UTC schedule. Each enabled row has one clock job in pg_cron, its own or the slot of its schedule.';

COMMENT ON COLUMN sumaclock.cron_jobs.schedule IS 'Five cron fields in UTC, or "N seconds" where pg_cron knows it.';

COMMENT ON COLUMN sumaclock.cron_jobs.catch_up IS 'After missed firings: ''one'' run for the last of them, or ''none'', which leaves a skipped run with the reason. Tasks always catch up once.';

COMMENT ON COLUMN sumaclock.cron_jobs.overlap IS 'A firing while one of the job''s last runs is pending or running: ''skip'' writes none, ''allow'' writes one all the same. ''auto'' skips for schedules in seconds and allows for all others. Tasks always allow.';

COMMENT ON COLUMN sumaclock.cron_jobs.slot_since IS 'Since when the slot of its schedule fires the job, from the next minute on. Null: a clock job of its own does.';

CREATE TABLE sumaclock.cron_runs (
    id bigint NOT NULL,
    job_id uuid NOT NULL,
    scheduled_at timestamp with time zone DEFAULT date_trunc('minute'::text, now()) NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    heartbeat_at timestamp with time zone,
    dagster_run_id uuid,
    claimed_by integer,
    status sumaclock.run_status DEFAULT 'pending'::sumaclock.run_status NOT NULL,
    trigger sumaclock.run_trigger DEFAULT 'clock'::sumaclock.run_trigger NOT NULL,
    attempts smallint DEFAULT 0 NOT NULL,
    lost smallint DEFAULT 0 NOT NULL,
    result jsonb,
    error text,
    CONSTRAINT cron_runs_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT cron_runs_lost_check CHECK ((lost >= 0)),
    CONSTRAINT done_has_no_error CHECK (((status <> 'done'::sumaclock.run_status) OR (error IS NULL))),
    CONSTRAINT ended_has_reason CHECK (((status <> ALL (ARRAY['failed'::sumaclock.run_status, 'skipped'::sumaclock.run_status])) OR (error IS NOT NULL))),
    CONSTRAINT ended_has_time CHECK (((finished_at IS NOT NULL) OR (status = ANY (ARRAY['pending'::sumaclock.run_status, 'running'::sumaclock.run_status])))),
    CONSTRAINT only_pending_is_unclaimed CHECK (((status = 'pending'::sumaclock.run_status) OR (claimed_by IS NOT NULL))),
    CONSTRAINT pending_is_unclaimed CHECK (((status <> 'pending'::sumaclock.run_status) OR ((claimed_by IS NULL) AND (started_at IS NULL) AND (finished_at IS NULL) AND (result IS NULL)))),
    CONSTRAINT running_is_claimed CHECK (((status <> 'running'::sumaclock.run_status) OR ((started_at IS NOT NULL) AND (heartbeat_at IS NOT NULL) AND (finished_at IS NULL) AND (attempts > 0) AND (result IS NULL)))),
    CONSTRAINT times_are_readable CHECK (((scheduled_at >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (scheduled_at < '9999-01-01 00:00:00+00'::timestamp with time zone) AND (due_at >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (due_at < '9999-01-01 00:00:00+00'::timestamp with time zone)))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='20000', autovacuum_vacuum_cost_delay='0', fillfactor='35');

ALTER TABLE sumaclock.cron_runs OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.cron_runs IS 'The work orders: one row a firing, written by pg_cron, claimed and ended by a worker.';

COMMENT ON COLUMN sumaclock.cron_runs.scheduled_at IS 'The minute (UTC) that the run was meant for; lateness counts from here.';

COMMENT ON COLUMN sumaclock.cron_runs.due_at IS 'From when a pending run may be claimed: its firing, or its next try.';

COMMENT ON COLUMN sumaclock.cron_runs.dagster_run_id IS 'The Dagster run that executes it: its worker''s, or the one that was launched for it.';

COMMENT ON COLUMN sumaclock.cron_runs.claimed_by IS 'The worker that claimed the run last: null while it is pending, -1 while a Dagster run of its own executes it, 0 when it ended without a worker.';

COMMENT ON COLUMN sumaclock.cron_runs.attempts IS 'Claims so far; with the id and claimed_by it names one claim.';

COMMENT ON COLUMN sumaclock.cron_runs.lost IS 'How many of the attempts ended with their worker instead of their handler.';

ALTER TABLE sumaclock.cron_runs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sumaclock.cron_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sumaclock.dagster_launches (
    id bigint NOT NULL,
    cron_run_id bigint NOT NULL,
    job_id uuid NOT NULL,
    task_id uuid,
    scheduled_for timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    offered_until timestamp with time zone,
    launched_at timestamp with time zone,
    ended_at timestamp with time zone,
    launch_key uuid DEFAULT gen_random_uuid() NOT NULL,
    dagster_run_id uuid,
    offers smallint DEFAULT 0 NOT NULL,
    state sumaclock.launch_state DEFAULT 'requested'::sumaclock.launch_state NOT NULL,
    outcome sumaclock.launch_outcome,
    told boolean DEFAULT false NOT NULL,
    idempotency_key text NOT NULL,
    organization_id text NOT NULL,
    user_id text NOT NULL,
    target jsonb NOT NULL,
    result jsonb,
    error text,
    seen_on text,
    CONSTRAINT dagster_launches_idempotency_key_check CHECK (((length(idempotency_key) >= 1) AND (length(idempotency_key) <= 255))),
    CONSTRAINT dagster_launches_offers_check CHECK ((offers >= 0)),
    CONSTRAINT dagster_launches_organization_id_check CHECK (((length(organization_id) >= 1) AND (length(organization_id) <= 200))),
    CONSTRAINT dagster_launches_target_check CHECK (((jsonb_typeof(target) = 'object'::text) AND (octet_length((target)::text) <= 1000000))),
    CONSTRAINT dagster_launches_user_id_check CHECK (((length(user_id) >= 1) AND (length(user_id) <= 200))),
    CONSTRAINT ended_is_whole CHECK ((((state = 'ended'::sumaclock.launch_state) = (ended_at IS NOT NULL)) AND ((state = 'ended'::sumaclock.launch_state) = (outcome IS NOT NULL)))),
    CONSTRAINT failed_has_reason CHECK (((NOT (outcome IS DISTINCT FROM 'failed'::sumaclock.launch_outcome)) = (error IS NOT NULL))),
    CONSTRAINT launched_has_run CHECK (((state <> 'launched'::sumaclock.launch_state) OR ((dagster_run_id IS NOT NULL) AND (launched_at IS NOT NULL)))),
    CONSTRAINT told_has_ended CHECK (((NOT told) OR (state = 'ended'::sumaclock.launch_state)))
)
WITH (fillfactor='70');

ALTER TABLE sumaclock.dagster_launches OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.dagster_launches IS 'Dagster runs that are to be launched, are under way or have ended: one row for each time that a run of kind dagster is executed. Written in the transaction that wants it.';

COMMENT ON COLUMN sumaclock.dagster_launches.cron_run_id IS 'The run that it is for. No foreign key: runs are pruned on their own.';

COMMENT ON COLUMN sumaclock.dagster_launches.scheduled_for IS 'The minute (UTC) that it was meant for.';

COMMENT ON COLUMN sumaclock.dagster_launches.offered_until IS 'Until then it counts as being launched. Whoever looks later looks for a Dagster run with its tag first.';

COMMENT ON COLUMN sumaclock.dagster_launches.launch_key IS 'The tag sumaclock/launch of its Dagster run, by which that is found whatever crashed.';

COMMENT ON COLUMN sumaclock.dagster_launches.offers IS 'How often Dagster was asked to launch it.';

COMMENT ON COLUMN sumaclock.dagster_launches.told IS 'Whether the run in cron_runs has taken its outcome.';

COMMENT ON COLUMN sumaclock.dagster_launches.idempotency_key IS 'The key of the run or of the task''s occurrence; one launch of it is open at a time.';

COMMENT ON COLUMN sumaclock.dagster_launches.target IS 'As resolved: job or assets, location, repository, run_config, tags, partition_key.';

COMMENT ON COLUMN sumaclock.dagster_launches.seen_on IS 'The machine on which the process of its Dagster run was seen, so that its end is seen there, too. Empty: looked for and not seen. Null: not looked for yet.';

ALTER TABLE sumaclock.dagster_launches ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sumaclock.dagster_launches_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sumaclock.job_errors (
    jobid bigint NOT NULL,
    queued_by name NOT NULL,
    command text NOT NULL,
    search_path text NOT NULL,
    priority integer NOT NULL,
    max_attempts integer NOT NULL,
    timeout interval,
    dedup_key text,
    note text,
    queued_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone NOT NULL,
    failed_at timestamp with time zone DEFAULT now() NOT NULL,
    attempts integer NOT NULL,
    sqlstate text NOT NULL,
    message text NOT NULL,
    detail text,
    hint text,
    context text
);

ALTER TABLE sumaclock.job_errors OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.job_errors IS 'One-off commands that failed for good, with the error of their last attempt.';

COMMENT ON COLUMN sumaclock.job_errors.started_at IS 'When the last attempt began.';

ALTER TABLE sumaclock.job_queue ALTER COLUMN jobid ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sumaclock.job_queue_jobid_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW sumaclock.job_queue_status WITH (security_invoker='true') AS
 SELECT q.jobid,
    q.queued_by,
        CASE
            WHEN ((q.claimed_at IS NULL) AND (q.due_at <= now())) THEN 'due'::text
            WHEN ((q.claimed_at IS NULL) AND (q.attempts > 0)) THEN 'retrying'::text
            WHEN (q.claimed_at IS NULL) THEN 'delayed'::text
            WHEN (q.cancelled_for IS NOT NULL) THEN 'cancelling'::text
            WHEN (EXISTS ( SELECT
               FROM pg_stat_activity a
              WHERE ((a.pid = q.runner_pid) AND COALESCE((a.backend_start = q.runner_began), true)))) THEN 'running'::text
            ELSE 'lost'::text
        END AS state,
    q.command,
    q.priority,
    q.attempts,
    q.max_attempts,
    q.queued_at,
    q.due_at,
    q.claimed_at AS started_at,
    (clock_timestamp() - q.claimed_at) AS running_for,
    q.timeout,
    q.dedup_key,
    q.note,
    q.runner_pid,
    q.sqlstate,
    q.message,
    q.detail,
    q.hint,
    q.context
   FROM sumaclock.job_queue q;

ALTER TABLE sumaclock.job_queue_status OWNER TO sumaclock_owner;

COMMENT ON VIEW sumaclock.job_queue_status IS 'The queue as the current role may see it. state: due, delayed (run_after), retrying, running, cancelling, or lost (its session is gone; the next look of a runner notices).';

CREATE TABLE sumaclock.job_runners (
    queued_by name NOT NULL,
    slot integer NOT NULL,
    enabled_at timestamp with time zone DEFAULT now() NOT NULL,
    looked_at timestamp with time zone,
    runner_pid integer,
    runner_began timestamp with time zone,
    CONSTRAINT job_runners_slot_check CHECK (((slot >= 0) AND (slot <= 100)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.0', autovacuum_vacuum_threshold='500');

ALTER TABLE sumaclock.job_runners OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.job_runners IS 'The runners of each role that may queue, and when each last looked at the queue. Slot 0 is the watcher, which cancels commands and notices lost sessions.';

CREATE TABLE sumaclock.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE sumaclock.migrations OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.migrations IS 'Which files of sql/migrations this database has got, with their SHA-256.';

CREATE TABLE sumaclock.missed_firings_look (
    the_only_row boolean DEFAULT true NOT NULL,
    looked_until timestamp with time zone DEFAULT date_trunc('minute'::text, now()) NOT NULL,
    CONSTRAINT missed_firings_look_looked_until_check CHECK (isfinite(looked_until)),
    CONSTRAINT missed_firings_look_the_only_row_check CHECK (the_only_row)
);

ALTER TABLE sumaclock.missed_firings_look OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.missed_firings_look IS 'One row: up to which minute missed firings of jobs have been looked for.';

CREATE TABLE sumaclock.preview_requests (
    id bigint NOT NULL,
    cron text,
    instant timestamp with time zone,
    timezone text NOT NULL,
    count integer NOT NULL,
    language text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    result jsonb,
    CONSTRAINT preview_requests_count_check CHECK (((count >= 1) AND (count <= 100)))
);

ALTER TABLE sumaclock.preview_requests OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.preview_requests IS 'Previews of schedules that are no task yet. A worker answers them and deletes them after a day.';

ALTER TABLE sumaclock.preview_requests ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sumaclock.preview_requests_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sumaclock.system_job_runs (
    name text NOT NULL,
    period timestamp with time zone NOT NULL,
    worker_id integer,
    attempts smallint DEFAULT 1 NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    finished_at timestamp with time zone,
    result jsonb,
    error text,
    CONSTRAINT failed_has_no_result CHECK (((error IS NULL) OR (result IS NULL))),
    CONSTRAINT system_job_runs_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT system_job_runs_name_check CHECK ((name ~ '^[A-Za-z0-9_.:-]{1,100}$'::text)),
    CONSTRAINT system_job_runs_period_check CHECK (isfinite(period)),
    CONSTRAINT unfinished_has_no_end CHECK (((finished_at IS NOT NULL) OR ((result IS NULL) AND (error IS NULL))))
)
WITH (fillfactor='80');

ALTER TABLE sumaclock.system_job_runs OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.system_job_runs IS 'One row for each period of a system job: the worker that inserts it executes it. Who executes holds the advisory lock of the job''s name.';

COMMENT ON COLUMN sumaclock.system_job_runs.period IS 'Beginning of the period by the database''s clock: the epoch''s seconds rounded down to the job''s every_seconds.';

COMMENT ON COLUMN sumaclock.system_job_runs.worker_id IS 'The worker that executes it; null where a worker that was stopped gave it back.';

COMMENT ON COLUMN sumaclock.system_job_runs.attempts IS 'More than one where a worker died with it, and another executes it again within its period.';

CREATE VIEW sumaclock.worker_sessions AS
 SELECT (l.objid)::bigint AS worker_id,
    l.pid
   FROM (pg_locks l
     JOIN pg_database d ON ((d.oid = l.database)))
  WHERE ((d.datname = current_database()) AND (l.locktype = 'advisory'::text) AND l.granted AND (l.classid = (1937075553)::oid) AND (l.objsubid = 2) AND (l.objid > (0)::oid));

ALTER TABLE sumaclock.worker_sessions OWNER TO sumaclock_owner;

COMMENT ON VIEW sumaclock.worker_sessions IS 'The workers that PostgreSQL sees alive: one row for each session that holds a worker''s lock.';

CREATE TABLE sumaclock.workers (
    id integer NOT NULL,
    code_version text NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    heartbeat_at timestamp with time zone,
    retires_at timestamp with time zone,
    stopped_at timestamp with time zone,
    dagster_run_id uuid,
    host text,
    pid integer,
    code_location text,
    CONSTRAINT started_is_whole CHECK ((((started_at IS NULL) = (heartbeat_at IS NULL)) AND ((started_at IS NULL) = (retires_at IS NULL)))),
    CONSTRAINT workers_code_location_check CHECK (((length(code_location) >= 1) AND (length(code_location) <= 1000)))
);

ALTER TABLE sumaclock.workers OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.workers IS 'Every worker, from its request to its end. A started worker lives while a session holds advisory lock (1937075553, id).';

COMMENT ON COLUMN sumaclock.workers.retires_at IS 'From here on the worker claims nothing more; its replacement is launched before.';

COMMENT ON COLUMN sumaclock.workers.code_location IS 'The Dagster code location whose sensor asked for it; only newer code of the same one retires it. Null: nobody''s, for example of a worker launched by hand.';

ALTER TABLE sumaclock.workers ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sumaclock.workers_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE ONLY sumaclock.ai_task_runs
    ADD CONSTRAINT ai_task_runs_idempotency_key_key UNIQUE (idempotency_key);

ALTER TABLE ONLY sumaclock.ai_task_runs
    ADD CONSTRAINT ai_task_runs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sumaclock.ai_tasks
    ADD CONSTRAINT ai_tasks_cron_job_id_key UNIQUE (cron_job_id);

ALTER TABLE ONLY sumaclock.ai_tasks
    ADD CONSTRAINT ai_tasks_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sumaclock.clock_slots
    ADD CONSTRAINT clock_slots_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sumaclock.clock_slots
    ADD CONSTRAINT clock_slots_schedule_key UNIQUE (schedule);

ALTER TABLE ONLY sumaclock.core_api_jobs
    ADD CONSTRAINT core_api_jobs_idempotency_key_key UNIQUE (idempotency_key);

ALTER TABLE ONLY sumaclock.core_api_jobs
    ADD CONSTRAINT core_api_jobs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sumaclock.core_api_line
    ADD CONSTRAINT core_api_line_pkey PRIMARY KEY (the_only_row);

ALTER TABLE ONLY sumaclock.cron_jobs
    ADD CONSTRAINT cron_jobs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sumaclock.cron_runs
    ADD CONSTRAINT cron_runs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sumaclock.dagster_launches
    ADD CONSTRAINT dagster_launches_launch_key_key UNIQUE (launch_key);

ALTER TABLE ONLY sumaclock.dagster_launches
    ADD CONSTRAINT dagster_launches_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sumaclock.job_errors
    ADD CONSTRAINT job_errors_pkey PRIMARY KEY (jobid);

ALTER TABLE ONLY sumaclock.job_queue
    ADD CONSTRAINT job_queue_pkey PRIMARY KEY (jobid);

ALTER TABLE ONLY sumaclock.job_runners
    ADD CONSTRAINT job_runners_pkey PRIMARY KEY (queued_by, slot);

ALTER TABLE ONLY sumaclock.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);

ALTER TABLE ONLY sumaclock.missed_firings_look
    ADD CONSTRAINT missed_firings_look_pkey PRIMARY KEY (the_only_row);

ALTER TABLE ONLY sumaclock.ai_task_runs
    ADD CONSTRAINT once_an_occurrence UNIQUE (task_id, scheduled_for);

ALTER TABLE ONLY sumaclock.preview_requests
    ADD CONSTRAINT preview_requests_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sumaclock.system_job_runs
    ADD CONSTRAINT system_job_runs_pkey PRIMARY KEY (name, period);

ALTER TABLE ONLY sumaclock.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);

CREATE INDEX ai_task_runs_finished ON sumaclock.ai_task_runs USING brin (finished_at) WITH (pages_per_range='32');

CREATE INDEX ai_task_runs_running ON sumaclock.ai_task_runs USING btree (id) WHERE (finished_at IS NULL);

CREATE INDEX ai_tasks_next ON sumaclock.ai_tasks USING btree (next_run_at) WHERE (status = 'active'::sumaclock.task_status);

CREATE INDEX ai_tasks_owner ON sumaclock.ai_tasks USING btree (organization_id, user_id);

CREATE INDEX core_api_jobs_failed ON sumaclock.core_api_jobs USING btree (finished_at) WHERE (status = 'failed'::sumaclock.core_api_status);

CREATE INDEX core_api_jobs_open ON sumaclock.core_api_jobs USING btree (next_attempt_at, id) WHERE (status = ANY (ARRAY['pending'::sumaclock.core_api_status, 'sending'::sumaclock.core_api_status]));

CREATE INDEX core_api_jobs_owner ON sumaclock.core_api_jobs USING btree (organization_id, user_id, id);

CREATE INDEX cron_jobs_owner ON sumaclock.cron_jobs USING btree (organization_id, user_id);

CREATE INDEX cron_jobs_slot ON sumaclock.cron_jobs USING btree (schedule) WHERE (enabled AND (slot_since IS NOT NULL));

CREATE INDEX cron_runs_job ON sumaclock.cron_runs USING btree (job_id, scheduled_at DESC);

CREATE INDEX cron_runs_open ON sumaclock.cron_runs USING btree (due_at, id) WHERE (finished_at IS NULL);

CREATE INDEX cron_runs_open_deliveries ON sumaclock.cron_runs USING btree (due_at) WHERE ((finished_at IS NULL) AND (job_id = 'a3fbeb71-424d-5b9e-8a81-0ecde17f25f7'::uuid));

CREATE INDEX cron_runs_scheduled ON sumaclock.cron_runs USING brin (scheduled_at) WITH (pages_per_range='32');

CREATE INDEX dagster_launches_job ON sumaclock.dagster_launches USING btree (job_id);

CREATE UNIQUE INDEX dagster_launches_open ON sumaclock.dagster_launches USING btree (idempotency_key) WHERE (state <> 'ended'::sumaclock.launch_state);

CREATE UNIQUE INDEX dagster_launches_run ON sumaclock.dagster_launches USING btree (cron_run_id) WHERE (NOT told);

CREATE INDEX dagster_launches_state ON sumaclock.dagster_launches USING btree (state, id) WHERE (state <> 'ended'::sumaclock.launch_state);

CREATE INDEX dagster_launches_task ON sumaclock.dagster_launches USING btree (task_id) WHERE (task_id IS NOT NULL);

CREATE INDEX job_errors_failed ON sumaclock.job_errors USING btree (failed_at);

CREATE INDEX job_errors_owner ON sumaclock.job_errors USING btree (queued_by, failed_at);

CREATE INDEX job_queue_claimed ON sumaclock.job_queue USING btree (queued_by) WHERE (claimed_at IS NOT NULL);

CREATE UNIQUE INDEX job_queue_dedup_key ON sumaclock.job_queue USING btree (queued_by, dedup_key) WHERE (dedup_key IS NOT NULL);

CREATE INDEX job_queue_waiting ON sumaclock.job_queue USING btree (queued_by, priority DESC, due_at, jobid) WHERE (claimed_at IS NULL);

CREATE INDEX preview_requests_open ON sumaclock.preview_requests USING btree (id) WHERE (result IS NULL);

CREATE INDEX workers_open ON sumaclock.workers USING btree (id) WHERE (stopped_at IS NULL);

CREATE CONSTRAINT TRIGGER new_core_api_job_is_due AFTER INSERT ON sumaclock.core_api_jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN ((new.status = 'pending'::sumaclock.core_api_status)) EXECUTE FUNCTION sumaclock.core_api_job_is_due();

CREATE CONSTRAINT TRIGGER revived_core_api_job_is_due AFTER UPDATE OF status ON sumaclock.core_api_jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (((new.status = 'pending'::sumaclock.core_api_status) AND (old.status = ANY (ARRAY['done'::sumaclock.core_api_status, 'failed'::sumaclock.core_api_status])))) EXECUTE FUNCTION sumaclock.core_api_job_is_due();

ALTER TABLE ONLY sumaclock.ai_task_runs
    ADD CONSTRAINT ai_task_runs_task_id_fkey FOREIGN KEY (task_id) REFERENCES sumaclock.ai_tasks(id) ON DELETE CASCADE;

ALTER TABLE ONLY sumaclock.ai_tasks
    ADD CONSTRAINT ai_tasks_cron_job_id_fkey FOREIGN KEY (cron_job_id) REFERENCES sumaclock.cron_jobs(id);

ALTER TABLE ONLY sumaclock.cron_runs
    ADD CONSTRAINT cron_runs_job_id_fkey FOREIGN KEY (job_id) REFERENCES sumaclock.cron_jobs(id) ON DELETE CASCADE;

ALTER TABLE ONLY sumaclock.dagster_launches
    ADD CONSTRAINT dagster_launches_job_id_fkey FOREIGN KEY (job_id) REFERENCES sumaclock.cron_jobs(id) ON DELETE CASCADE;

ALTER TABLE ONLY sumaclock.dagster_launches
    ADD CONSTRAINT dagster_launches_task_id_fkey FOREIGN KEY (task_id) REFERENCES sumaclock.ai_tasks(id) ON DELETE CASCADE;

ALTER TABLE sumaclock.job_errors ENABLE ROW LEVEL SECURITY;

ALTER TABLE sumaclock.job_queue ENABLE ROW LEVEL SECURITY;

ALTER TABLE sumaclock.job_runners ENABLE ROW LEVEL SECURITY;

CREATE POLICY own_commands ON sumaclock.job_queue FOR INSERT WITH CHECK ((queued_by = CURRENT_USER));

CREATE POLICY own_rows ON sumaclock.job_errors FOR SELECT USING ((queued_by = CURRENT_USER));

CREATE POLICY own_rows ON sumaclock.job_queue FOR SELECT USING ((queued_by = CURRENT_USER));

CREATE POLICY own_rows ON sumaclock.job_runners FOR SELECT USING ((queued_by = CURRENT_USER));

GRANT USAGE ON SCHEMA sumaclock TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.allow_once(role name) FROM PUBLIC;

REVOKE ALL ON FUNCTION sumaclock.cancel_once(jobid bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.cancel_once(jobid bigint) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.check_schedule(cron text, instant timestamp with time zone, timezone text) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.check_schedule(cron text, instant timestamp with time zone, timezone text) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.check_task(organization_id text, user_id text, kind text, title text, payload jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.check_task(organization_id text, user_id text, kind text, title text, payload jsonb) TO sumaclock_app;

GRANT SELECT ON TABLE sumaclock.job_queue TO sumaclock_app;

GRANT INSERT(command) ON TABLE sumaclock.job_queue TO sumaclock_app;

GRANT INSERT(search_path) ON TABLE sumaclock.job_queue TO sumaclock_app;

GRANT INSERT(priority) ON TABLE sumaclock.job_queue TO sumaclock_app;

GRANT INSERT(max_attempts) ON TABLE sumaclock.job_queue TO sumaclock_app;

GRANT INSERT(timeout) ON TABLE sumaclock.job_queue TO sumaclock_app;

GRANT INSERT(dedup_key) ON TABLE sumaclock.job_queue TO sumaclock_app;

GRANT INSERT(note) ON TABLE sumaclock.job_queue TO sumaclock_app;

GRANT INSERT(due_at) ON TABLE sumaclock.job_queue TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.claim_command(began timestamp with time zone, at timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.claim_command(began timestamp with time zone, at timestamp with time zone) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.clean_session() FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.clean_session() TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.clock_settings() FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.clock_settings() TO sumaclock_owner;
GRANT ALL ON FUNCTION sumaclock.clock_settings() TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.create_task(organization_id text, user_id text, kind text, title text, payload jsonb, cron text, instant timestamp with time zone, timezone text) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.create_task(organization_id text, user_id text, kind text, title text, payload jsonb, cron text, instant timestamp with time zone, timezone text) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.delete_task(task_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.delete_task(task_id uuid) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.end_attempt(job sumaclock.job_queue, final boolean, sqlstate text, message text, detail text, hint text, context text) FROM PUBLIC;

REVOKE ALL ON FUNCTION sumaclock.fail_command(jobid bigint, attempts integer, sqlstate text, message text, detail text, hint text, context text) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.fail_command(jobid bigint, attempts integer, sqlstate text, message text, detail text, hint text, context text) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.finish_command(jobid bigint, attempts integer) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.finish_command(jobid bigint, attempts integer) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.hold_overdue_commands() FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.hold_overdue_commands() TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.ai_tasks TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.hold_task(task_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.hold_task(task_id uuid) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.job_queue_by_role() FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.job_queue_by_role() TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.look_at_queue(slot integer, seen_at timestamp with time zone, pids integer[], began timestamp with time zone[]) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.look_at_queue(slot integer, seen_at timestamp with time zone, pids integer[], began timestamp with time zone[]) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.needs_no_transaction(command text) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.needs_no_transaction(command text) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.note_runners(role name, slots integer) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.note_runners(role name, slots integer) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.oldest_transaction() FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.oldest_transaction() TO sumaclock_owner;
GRANT ALL ON FUNCTION sumaclock.oldest_transaction() TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.owner_has_access(organization_id text, user_id text) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.owner_has_access(organization_id text, user_id text) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.pause_task(task_id uuid, reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.pause_task(task_id uuid, reason text) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.preview_result(request bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.preview_result(request bigint) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.preview_task(task_id uuid, count integer) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.preview_task(task_id uuid, count integer) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.prune_job_errors(days integer, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.prune_job_errors(days integer, most integer) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.request_preview(cron text, instant timestamp with time zone, timezone text, count integer, language text) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.request_preview(cron text, instant timestamp with time zone, timezone text, count integer, language text) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.request_run(job_id uuid, trigger sumaclock.run_trigger) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.request_run(job_id uuid, trigger sumaclock.run_trigger) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.resume_task(task_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.resume_task(task_id uuid) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.retry_once(jobid bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.retry_once(jobid bigint) TO sumaclock_app;

REVOKE ALL ON PROCEDURE sumaclock.run_jobs(IN slot integer, IN look_for interval) FROM PUBLIC;
GRANT ALL ON PROCEDURE sumaclock.run_jobs(IN slot integer, IN look_for interval) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.run_task_now(task_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.run_task_now(task_id uuid) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.schedule_once(command text, max_attempts integer, run_after timestamp with time zone, priority integer, timeout interval, dedup_key text, note text, search_path text) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.schedule_once(command text, max_attempts integer, run_after timestamp with time zone, priority integer, timeout interval, dedup_key text, note text, search_path text) TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.update_task(task_id uuid, kind text, title text, payload jsonb, cron text, instant timestamp with time zone, timezone text) FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.update_task(task_id uuid, kind text, title text, payload jsonb, cron text, instant timestamp with time zone, timezone text) TO sumaclock_app;

REVOKE ALL ON PROCEDURE sumaclock.watch_jobs(IN look_for interval) FROM PUBLIC;
GRANT ALL ON PROCEDURE sumaclock.watch_jobs(IN look_for interval) TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.ai_task_runs TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.clock_slots TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.core_api_jobs TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.core_api_line TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.cron_jobs TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.cron_runs TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.dagster_launches TO sumaclock_app;

GRANT SELECT ON TABLE sumaclock.job_errors TO sumaclock_app;

GRANT SELECT ON TABLE sumaclock.job_queue_status TO sumaclock_app;

GRANT SELECT ON TABLE sumaclock.job_runners TO sumaclock_app;

GRANT SELECT ON TABLE sumaclock.migrations TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.missed_firings_look TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.preview_requests TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.system_job_runs TO sumaclock_app;

GRANT SELECT ON TABLE sumaclock.worker_sessions TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.workers TO sumaclock_app;
