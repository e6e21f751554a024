-- The queue of one-off commands. Each role that queues has runners of its own, which pg_cron starts as that role, so a
-- command runs with the rights of who queued it and with no others. Roles may insert rows of their own (row-level
-- security says whose they are) and read them; everything else goes through functions that act on rows of the session's
-- role only. Nobody gets UPDATE or DELETE, because with those one could lock the table against everybody else.

create table sumaclock.job_queue (
    jobid         bigint      generated always as identity primary key,
    queued_by     name        not null default current_user,
    command       text        not null check (octet_length(command) between 1 and 10000000),
    search_path   text        not null default current_setting('search_path') check (octet_length(search_path) <= 10000),
    priority      integer     not null default 0,
    max_attempts  integer     not null default 5 check (max_attempts between 1 and 1000),
    timeout       interval    check (timeout >= interval '1 second' and timeout <= interval '30 days'),
    dedup_key     text        check (length(dedup_key) between 1 and 200),
    note          text        check (length(note) <= 1000),
    queued_at     timestamptz not null default now(),
    due_at        timestamptz not null default now() check (due_at >= '1970-01-01 00:00Z' and due_at < '9999-01-01 00:00Z'),
    attempts      integer     not null default 0 check (attempts >= 0),
    claimed_at    timestamptz,
    runner_pid    integer,
    runner_began  timestamptz,
    cancelled_for text        check (cancelled_for in ('request', 'timeout')),
    sqlstate      text,
    message       text,
    detail        text,
    hint          text,
    context       text,
    constraint claimed_is_whole check (num_nulls(claimed_at, runner_pid, runner_began) in (0, 3)),
    constraint cancelled_is_claimed check (cancelled_for is null or claimed_at is not null)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
comment on table sumaclock.job_queue is 'One-off commands that wait or run. A success deletes its row in the transaction of the command; the last failed attempt moves it to job_errors.';
comment on column sumaclock.job_queue.queued_by is 'Whose command it is, and as whom it runs: the current role of whoever queued it.';
comment on column sumaclock.job_queue.search_path is 'In force while the command runs.';
comment on column sumaclock.job_queue.priority is 'Higher ones first.';
comment on column sumaclock.job_queue.due_at is 'Not before; after a failed attempt, when the next may begin.';
comment on column sumaclock.job_queue.attempts is 'Attempts that have begun, counted in a transaction of their own before the command runs.';
comment on column sumaclock.job_queue.runner_pid is 'With runner_began the session that runs it. When that session is gone, so is the attempt.';
comment on column sumaclock.job_queue.cancelled_for is 'Why the runner is told to cancel the command.';
comment on column sumaclock.job_queue.message is 'With sqlstate, detail, hint and context: how the last attempt failed.';

create index job_queue_waiting on sumaclock.job_queue (queued_by, priority desc, due_at, jobid) where claimed_at is null;
create index job_queue_claimed on sumaclock.job_queue (queued_by) where claimed_at is not null;
create unique index job_queue_dedup_key on sumaclock.job_queue (queued_by, dedup_key) where dedup_key is not null;

create table sumaclock.job_errors (
    jobid        bigint      primary key,
    queued_by    name        not null,
    command      text        not null,
    search_path  text        not null,
    priority     integer     not null,
    max_attempts integer     not null,
    timeout      interval,
    dedup_key    text,
    note         text,
    queued_at    timestamptz not null,
    started_at   timestamptz not null,
    failed_at    timestamptz not null default now(),
    attempts     integer     not null,
    sqlstate     text        not null,
    message      text        not null,
    detail       text,
    hint         text,
    context      text
);
comment on table sumaclock.job_errors is 'One-off commands that failed for good, with the error of their last attempt.';
comment on column sumaclock.job_errors.started_at is 'When the last attempt began.';

create index job_errors_failed on sumaclock.job_errors (failed_at);
create index job_errors_owner on sumaclock.job_errors (queued_by, failed_at);

create table sumaclock.job_runners (
    queued_by    name        not null,
    slot         integer     not null check (slot between 0 and 100),
    enabled_at   timestamptz not null default now(),
    looked_at    timestamptz,
    runner_pid   integer,
    runner_began timestamptz,
    primary key (queued_by, slot)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);
comment on table sumaclock.job_runners is 'The runners of each role that may queue, and when each last looked at the queue. Slot 0 is the watcher, which cancels commands and notices lost sessions.';

alter table sumaclock.job_queue enable row level security;
alter table sumaclock.job_errors enable row level security;
alter table sumaclock.job_runners enable row level security;
create policy own_rows on sumaclock.job_queue for select using (queued_by = current_user);
create policy own_commands on sumaclock.job_queue for insert with check (queued_by = current_user);
create policy own_rows on sumaclock.job_errors for select using (queued_by = current_user);
create policy own_rows on sumaclock.job_runners for select using (queued_by = current_user);

create view sumaclock.job_queue_status with (security_invoker = true) as
select q.jobid, q.queued_by,
       case when q.claimed_at is null and q.due_at <= now() then 'due'
            when q.claimed_at is null and q.attempts > 0 then 'retrying'
            when q.claimed_at is null then 'delayed'
            when q.cancelled_for is not null then 'cancelling'
            -- Another role's sessions do not say when they began.
            when exists (select from pg_catalog.pg_stat_activity a
                         where a.pid = q.runner_pid and coalesce(a.backend_start = q.runner_began, true)) then 'running'
            else 'lost' end as state,
       q.command, q.priority, q.attempts, q.max_attempts, q.queued_at, q.due_at,
       q.claimed_at as started_at, clock_timestamp() - q.claimed_at as running_for,
       q.timeout, q.dedup_key, q.note, q.runner_pid, q.sqlstate, q.message, q.detail, q.hint, q.context
from sumaclock.job_queue q;
comment on view sumaclock.job_queue_status is 'The queue as the current role may see it. state: due, delayed (run_after), retrying, running, cancelling, or lost (its session is gone; the next look of a runner notices).';

-- What a transaction block refuses, told by how the command begins. What hides behind that fails when it runs, at once.
create function sumaclock.needs_no_transaction(command text) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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
end $$;
comment on function sumaclock.needs_no_transaction is 'Whether a command begins like one that manages transactions or cannot run inside one, such as VACUUM.';

create function sumaclock.schedule_once(
    command      text,
    max_attempts integer     default 5,
    run_after    timestamptz default null,
    priority     integer     default 0,
    timeout      interval    default null,
    dedup_key    text        default null,
    note         text        default null,
    -- A default is evaluated where the function is called: this is the caller's path, not the one below.
    search_path  text        default pg_catalog.current_setting('search_path')
) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
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
end $$;
comment on function sumaclock.schedule_once is 'Queues a command, to run once in the background as the current role, within about 5 seconds after the commit or after run_after. It runs in a transaction of its own, under the caller''s search_path; failed attempts are repeated at least 10 seconds apart up to max_attempts, then job_errors has it. With a dedup_key that is queued or running already, nothing is queued, and the jobid is that one''s. Returns the jobid.';

-- Who acts: the role that the session was opened as. It may do so for roles that it is a member of.
create function sumaclock.cancel_once(jobid bigint) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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
comment on function sumaclock.cancel_once is 'Takes a command that waits out of the queue (''removed''), or has one that runs cancelled within about 5 seconds and then moved to job_errors (''cancelling'').';

create function sumaclock.retry_once(jobid bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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
comment on function sumaclock.retry_once is 'Queues a command of job_errors again, with all its attempts. Returns its new jobid.';

create function sumaclock.end_attempt(job sumaclock.job_queue, final boolean, sqlstate text, message text, detail text, hint text, context text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
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
comment on function sumaclock.end_attempt is 'Writes how an attempt failed: back to the queue, or on to job_errors.';

-- A look of a runner or watcher: who is alive is told by its own role's sessions, which only that role can see. A list
-- that lies harms the liar's own commands. Returns whether the slot is this session's.
create function sumaclock.look_at_queue(slot integer, seen_at timestamptz, pids integer[], began timestamptz[]) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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
comment on function sumaclock.look_at_queue is 'Notes that a runner looks, and ends the attempts of sessions that are gone. False: another session has this slot.';

create function sumaclock.claim_command(began timestamptz, at timestamptz) returns sumaclock.job_queue
language sql security definer set search_path = pg_catalog, pg_temp as $$
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
comment on function sumaclock.claim_command is 'Takes the next command of this session''s role that is due at that time and counts the attempt; null for none.';

create function sumaclock.finish_command(jobid bigint, attempts integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    delete from sumaclock.job_queue q
    where q.jobid = finish_command.jobid and q.attempts = finish_command.attempts
      and q.queued_by = session_user and q.runner_pid = pg_backend_pid();
    if not found then
        raise exception 'Attempt % of command % is no longer this session''s.', attempts, jobid using errcode = 'object_not_in_prerequisite_state';
    end if;
end $$;
comment on function sumaclock.finish_command is 'Takes a command that has succeeded out of the queue, in the transaction of the command.';

create function sumaclock.fail_command(jobid bigint, attempts integer, sqlstate text, message text, detail text, hint text, context text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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
comment on function sumaclock.fail_command is 'Writes how the attempt of this session failed.';

create function sumaclock.hold_overdue_commands() returns table (pid integer, began timestamptz)
language sql security definer set search_path = pg_catalog, pg_temp as $$
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
comment on function sumaclock.hold_overdue_commands is 'The sessions of commands to cancel. Until this transaction ends, those commands cannot end, so that a cancel never meets the next command.';

-- As DISCARD ALL, which is not to be had inside a procedure. Plans are kept: they depend on nothing that is reset here.
create function sumaclock.clean_session() returns void
language plpgsql as $$
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
comment on function sumaclock.clean_session is 'Brings the session back to its beginning, under a search_path that nobody else can put anything into.';

-- Not SECURITY DEFINER, and without SET: procedures with either cannot commit. So each name in it is qualified, and the
-- path is safe before anything else is looked up.
create procedure sumaclock.run_jobs(slot integer default null, look_for interval default '0 seconds')
language plpgsql as $$
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
comment on procedure sumaclock.run_jobs is 'Runs the due commands of the role that the session was opened as, one after the other, each in a transaction of its own, and resets the session after each. slot: only one session a slot. look_for: until then in its minute, it looks again every 5 seconds.';

create procedure sumaclock.watch_jobs(look_for interval default '0 seconds')
language plpgsql as $$
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
comment on procedure sumaclock.watch_jobs is 'Cancels the commands of the session''s role that run longer than their timeout or were cancelled, and notices lost sessions. look_for: as in run_jobs.';

create function sumaclock.note_runners(role name, slots integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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
comment on function sumaclock.note_runners is 'Notes that a role has this many runners, and a watcher; 0 for none any more.';

create function sumaclock.job_queue_by_role()
returns table (queued_by name, due bigint, oldest_due_at timestamptz, waiting bigint, running bigint, runners bigint, looked_at timestamptz, failed_lately bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
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
comment on function sumaclock.job_queue_by_role is 'Counts for each role that queues, without showing whose commands say what: due, waiting for a later time, running, its runners and their last look, failures of the last 24 hours.';

create function sumaclock.prune_job_errors(days integer, most integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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
comment on function sumaclock.prune_job_errors is 'Deletes up to `most` failed commands, of all roles, that failed longer than `days` ago. Returns how many.';

-- Run by the owner role or a superuser: the queue for one more role, and no longer for it.
create function sumaclock.allow_once(role name) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
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
comment on function sumaclock.allow_once is 'Grants what a role needs to queue commands and to run its own. For the owner role, or for a superuser, who also grants it to connect.';

do $$
declare
    app text := current_setting('sumaclock.app_role');
    made regprocedure;
begin
    for made in
        select p.oid from pg_catalog.pg_proc p
        where p.pronamespace = 'sumaclock'::regnamespace
          and p.proname in ('needs_no_transaction', 'schedule_once', 'cancel_once', 'retry_once', 'end_attempt', 'look_at_queue', 'claim_command',
                            'finish_command', 'fail_command', 'hold_overdue_commands', 'clean_session', 'run_jobs', 'watch_jobs', 'note_runners',
                            'job_queue_by_role', 'prune_job_errors', 'allow_once')
    loop
        execute format('revoke all on routine %s from public', made);
    end loop;
    perform sumaclock.allow_once(app);
    execute format('grant execute on function sumaclock.job_queue_by_role, sumaclock.prune_job_errors to %I', app);
end $$;
