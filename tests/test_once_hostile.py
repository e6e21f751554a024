"""One-off commands that mean harm: they run with the rights of who queued them, and nobody else notices."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors, sql

from sumaclock_dagster.db import Connection, connect
from tests.conftest import AppDatabase, TestCluster
from tests.once import FUNCTIONS, RUN, WATCH, Role, failed, login_role, make_due, note_runners, queue, queued, run_due

WHO = "insert into public.effects (what) values ('{}')"


@pytest.fixture(autouse=True)
def _ground(app: Connection, superuser: Connection) -> None:
    note_runners(app)
    superuser.execute(
        "create table public.effects (id bigint generated always as identity, what text,"
        " role text default current_user, session text default session_user,"
        " path text default current_setting('search_path'));"
        "grant select, insert on public.effects to public;"
        "create table public.secrets (what text); insert into public.secrets values ('hidden');"
        "grant all on public.secrets to sumaclock_app"
    )


@pytest.fixture
def eve(cluster: TestCluster, app_db: AppDatabase, superuser: Connection) -> Iterator[Role]:
    with login_role(cluster, app_db, superuser) as role:
        yield role


@pytest.fixture
def as_eve(eve: Role) -> Iterator[Connection]:
    with connect(eve.url, "test eve") as conn:
        yield conn


def test_a_command_runs_as_who_queued_it_and_as_nobody_else(
    app_db: AppDatabase, app: Connection, eve: Role, as_eve: Connection
) -> None:
    mine, hers = queue(app, WHO.format("app")), queue(as_eve, WHO.format("eve"))
    run_due(app_db.app_url)
    assert (queued(app), queued(as_eve)) == ([], [hers])
    run_due(eve.url)
    rows = app.execute("select what, role, session from public.effects order by id").fetchall()
    assert rows == [("app", "sumaclock_app", "sumaclock_app"), ("eve", eve.name, eve.name)]
    assert mine != hers


@pytest.mark.parametrize(
    "attempt",
    [
        "reset role; {}",
        "set role sumaclock_app; {}",
        "set role postgres; {}",
        "set session authorization sumaclock_app; {}",
        "reset session authorization; {}",
        "set session authorization default; {}",
        "set local role none; {}",
        "do $$ begin execute 'reset role'; execute 'set role sumaclock_owner'; end $$; {}",
        "select set_config('role', 'sumaclock_app', false); {}",
        "select set_config('session_authorization', 'postgres', false); {}",
        "{}; select sumaclock.claim_command(now(), now()); {}",
        "set search_path = public; {}; call sumaclock.run_jobs()",
    ],
)
def test_no_command_becomes_another_role(
    app_db: AppDatabase, app: Connection, eve: Role, as_eve: Connection, superuser: Connection, attempt: str
) -> None:
    bait = queue(app, WHO.format("app"))
    jobid = queue(as_eve, attempt.replace("{}", "insert into public.effects (what) select what from public.secrets"))
    other = queue(as_eve, attempt.replace("{}", WHO.format("hers")))
    for _ in range(5):
        run_due(eve.url)
        make_due(superuser)
    assert failed(as_eve, jobid)[0] in ("42501", "2D000"), "the secret was read"
    assert queued(as_eve) == []
    roles = app.execute("select distinct role, session from public.effects").fetchall()
    assert roles in ([], [(eve.name, eve.name)])
    assert app.execute("select attempts from sumaclock.job_queue where jobid = %s", [bait]).fetchall() == [(0,)]
    assert other not in queued(app)


FORBIDDEN = {
    "queue as another": "insert into sumaclock.job_queue (command, queued_by) values ('select 1', 'sumaclock_app')",
    "queue as claimed": "insert into sumaclock.job_queue (command, claimed_at) values ('select 1', now())",
    "give hers away": "update sumaclock.job_queue set queued_by = 'sumaclock_app'",
    "change a command": "update sumaclock.job_queue set command = 'select 2'",
    "delete": "delete from sumaclock.job_queue",
    "truncate": "truncate sumaclock.job_queue",
    "lock the queue": "lock table sumaclock.job_queue in share mode",
    "lock it exclusively": "lock table sumaclock.job_queue in access exclusive mode",
    "lock the view": "lock table sumaclock.job_queue_status in exclusive mode",
    "lock errors": "lock table sumaclock.job_errors in share mode",
    "hold rows": "select * from sumaclock.job_queue for update",
    "write an error": "insert into sumaclock.job_errors select from sumaclock.job_errors",
    "write a look": "update sumaclock.job_runners set looked_at = now()",
    "end another's attempt": "select sumaclock.end_attempt(null, true, '', '', '', '', '')",
    "allow others": "select sumaclock.allow_once('sumaclock_dagster')",
    "note runners for others": "select sumaclock.note_runners('sumaclock_app', 0)",
    "see others' counts": "select * from sumaclock.job_queue_by_role()",
    "prune": "select sumaclock.prune_job_errors(1, 1)",
    "jobs of sumaclock": "select * from sumaclock.cron_jobs",
    "no row security": "alter table sumaclock.job_queue disable row level security",
    "a trigger": "create trigger t before insert on sumaclock.job_queue execute function"
    " pg_catalog.suppress_redundant_updates_trigger()",
}


def test_a_role_that_may_queue_may_do_nothing_else(app: Connection, as_eve: Connection) -> None:
    mine, _ = queue(app, "select 1"), queue(as_eve, "select 1")
    before = app.execute("select * from sumaclock.job_queue").fetchall()
    for statement in FORBIDDEN.values():
        with pytest.raises(errors.InsufficientPrivilege), as_eve.transaction():
            as_eve.execute(statement)
    assert queued(app) == [mine]
    assert app.execute("select * from sumaclock.job_queue").fetchall() == before


def test_a_role_sees_and_touches_its_own_commands_only(
    app_db: AppDatabase, app: Connection, eve: Role, as_eve: Connection
) -> None:
    mine = queue(app, "select 'a secret'", dedup_key="k")
    bad = queue(app, "select 1/0", max_attempts=1, priority=1)
    run_due_once = "select (sumaclock.claim_command(now(), now())).jobid"
    hers = queue(as_eve, "select 1", dedup_key="k")
    assert hers not in (mine, bad), "another's dedup_key was hers"
    assert queued(as_eve) == [hers]
    assert as_eve.execute("select jobid from sumaclock.job_queue_status").fetchall() == [(hers,)]
    for function in ("cancel_once", "retry_once"):
        for jobid in (mine, bad):
            with pytest.raises(errors.NoDataFound):
                as_eve.execute(f"select sumaclock.{function}(%s)", [jobid])
    assert as_eve.execute(run_due_once).fetchall() == [(hers,)]
    assert as_eve.execute(run_due_once).fetchall() == [(None,)]
    with pytest.raises(errors.ObjectNotInPrerequisiteState):
        as_eve.execute("select sumaclock.finish_command(%s, 0)", [mine])
    as_eve.execute("select sumaclock.fail_command(%s, 0, 'X', 'm', '', '', '')", [mine])
    as_eve.execute("select sumaclock.look_at_queue(null, now() + interval '1 day', array[1], array[now()])")
    assert as_eve.execute("select * from sumaclock.hold_overdue_commands()").fetchall() == []
    assert queued(app) == [mine, bad]
    run_due(app_db.app_url)
    assert as_eve.execute("select * from sumaclock.job_errors").fetchall() == []


def test_a_role_cannot_cancel_anothers_session(
    app_db: AppDatabase, app: Connection, eve: Role, as_eve: Connection, superuser: Connection
) -> None:
    # Even a row that claims another's session as its runner is cancelled only where the session is the role's own.
    hers = queue(as_eve, "select 1", timeout="1 second")
    superuser.execute(
        "update sumaclock.job_queue q set claimed_at = now() - interval '1 hour', runner_pid = a.pid,"
        " runner_began = a.backend_start from pg_stat_activity a where a.pid = %s and q.jobid = %s",
        [app.info.backend_pid, hers],
    )
    as_eve.execute(WATCH)
    assert app.execute("select 1").fetchall() == [(1,)]
    assert not app.broken


def test_locks_that_anybody_may_take_hold_up_nobody(app_db: AppDatabase, app: Connection, as_eve: Connection) -> None:
    jobid = queue(app, WHO.format("app"))
    as_eve.execute("begin; lock table sumaclock.job_queue in access share mode")
    as_eve.execute("select pg_advisory_lock(n) from generate_series(0, 500) n")
    as_eve.execute("select pg_advisory_lock(1937075553, n) from generate_series(0, 500) n")
    run_due(app_db.app_url)
    as_eve.execute("rollback; select pg_advisory_unlock_all()")
    assert jobid not in queued(app)


@pytest.mark.parametrize(
    "poison",
    [
        "set search_path = evil, pg_catalog",
        "select set_config('search_path', 'evil, pg_catalog', false)",
        "create temp table effects (what text)",
        "create temp table job_queue (what text)",
        "prepare p as select 1; set statement_timeout = '1ms'; set lock_timeout = '1ms'",
        "set default_transaction_read_only = on",
        "set default_transaction_isolation = serializable",
        "set datestyle = german; set timezone = 'Asia/Kathmandu'; set standard_conforming_strings = off",
        "set transform_null_equals = on; set plpgsql.variable_conflict = use_column",
        "select pg_advisory_lock(1)",
        "listen cron_runs",
        "declare c cursor with hold for select * from generate_series(1, 10)",
        "set role {member}",
        "set session_replication_role = replica",
        "set application_name = 'pretender'; set my.own = 'x'",
    ],
)
def test_a_command_leaves_nothing_to_the_next(
    app_db: AppDatabase, eve: Role, as_eve: Connection, superuser: Connection, poison: str
) -> None:
    superuser.execute(
        sql.SQL(
            "create schema evil authorization {eve}; create role {member}; grant {member} to {eve};"
            "grant usage on schema evil to public"
        ).format(eve=sql.Identifier(eve.name), member=sql.Identifier(f"{eve.name}_m"))
    )
    try:
        as_eve.execute(
            "create function evil.now() returns timestamptz language sql as 'select null::timestamptz';"
            "create function evil.set_config(text, text, boolean) returns text language sql as 'select null';"
            "create function evil.clean_session() returns void language sql as 'select';"
            "create table evil.effects (what text)"
        )
        first = queue(as_eve, poison.replace("{member}", f"{eve.name}_m"), max_attempts=1)
        state = (
            "insert into public.effects (what) select concat_ws(' ', current_setting('datestyle'),"
            " current_setting('timezone'), current_setting('statement_timeout'), current_setting('lock_timeout'),"
            " current_setting('standard_conforming_strings'), current_setting('transaction_isolation'),"
            " current_setting('application_name'), nullif(current_setting('my.own', true), ''),"
            " (select count(*) from pg_prepared_statements where name = 'p'),"
            " (select count(*) from pg_cursors where is_holdable),"
            " (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'),"
            " (select count(*) from pg_listening_channels()), to_regclass('pg_temp.effects'),"
            " to_regclass('pg_temp.job_queue'))"
        )
        clean = queue(as_eve, state, priority=10)
        after = queue(as_eve, state)
        with connect(eve.url, "test runner") as runner:
            runner.execute(RUN)
        assert queued(as_eve) == [], "the queue is stuck"
        rows = superuser.execute("select what, role, session, path from public.effects order by id").fetchall()
        assert len(rows) == 2, failed(as_eve, after)
        assert rows[0] == rows[1]
        assert failed(as_eve, clean) is None
        denied = failed(as_eve, first)
        assert denied is None or denied[0] == "42501"
    finally:
        superuser.execute(sql.SQL("drop schema evil cascade"))
        superuser.execute(sql.SQL("drop role {}").format(sql.Identifier(f"{eve.name}_m")))


def test_functions_named_like_ours_in_anybodys_path_are_not_picked_up(
    app_db: AppDatabase, app: Connection, superuser: Connection, eve: Role, as_eve: Connection
) -> None:
    superuser.execute(
        sql.SQL("create schema evil authorization {}; grant usage on schema evil to public").format(
            sql.Identifier(eve.name)
        )
    )
    trap = "language plpgsql as $$ begin insert into public.effects (what) values ('trap'); return {}; end $$"
    for signature, result in (
        ("schedule_once(command text) returns bigint", "1"),
        ("needs_no_transaction(text) returns boolean", "false"),
        ("octet_length(text) returns integer", "1"),
        ("now() returns timestamptz", "null::timestamptz"),
        ("clock_timestamp() returns timestamptz", "null::timestamptz"),
        ("pg_backend_pid() returns integer", "1"),
        ("current_database() returns name", "'x'::name"),
        ("set_config(text, text, boolean) returns text", "''"),
        ("pg_sleep(integer) returns text", "''"),
        ("finish_command(bigint, integer) returns text", "''"),
        ("int4eq(integer, integer) returns boolean", "true"),
    ):
        as_eve.execute(f"create function evil.{signature} {trap.format(result)}")
    as_eve.execute(
        "create operator evil.= (leftarg = integer, rightarg = integer, function = evil.int4eq);"
        "create table evil.job_queue (jobid bigint); create table evil.pg_stat_activity (pid int)"
    )
    app.execute("set search_path = evil, pg_catalog, public")
    jobid = queue(app, "select 1")
    with connect(app_db.app_url, "test runner") as runner:
        runner.execute("set search_path = evil, pg_catalog, public")
        runner.execute(RUN)
        runner.execute("set search_path = evil, pg_catalog, public")
        runner.execute(WATCH)
    assert superuser.execute("select * from public.effects").fetchall() == []
    app.execute("reset search_path")
    assert (queued(app), failed(app, jobid)) == ([], None)
    superuser.execute("drop schema evil cascade")


TEXTS = {
    "quotes": "it's \"quoted\" and ''doubled''",
    "dollar quotes": "$$ $q$ $1 $body$",
    "comments": "-- not /* nested */ --",
    "semicolons": "; drop table public.effects; --",
    "backslashes": r"\0 \x00 \u0000 E'\\' %s %(x)s {} {0}",
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f",
    "other scripts": "ñ 中 🐘 \u202e reversed \ufeff \uffff",
    "placeholders": "{slot} {seconds} :name @name ?",
}


def test_hostile_texts_arrive_as_they_are(app_db: AppDatabase, app: Connection) -> None:
    for text in TEXTS.values():
        command = app.execute("select format('insert into public.effects (what) values (%%L)', %s::text)", [text])
        queue(app, command.fetchall()[0][0], note=text, dedup_key=text)
    assert app.execute("select note, dedup_key from sumaclock.job_queue order by jobid").fetchall() == [
        (text, text) for text in TEXTS.values()
    ]
    run_due(app_db.app_url)
    assert app.execute("select * from sumaclock.job_errors").fetchall() == []
    rows = app.execute("select what from public.effects order by id").fetchall()
    assert [row[0] for row in rows] == list(TEXTS.values())


BROKEN = [
    "'",
    "$$",
    "$q$ select 1",
    "/* never closed",
    "select E'\\u0000'",
    "select chr(0)",
    "\\q",
    "select 1 from",
    "@",
    "\x01",
]


def test_broken_sql_fails_and_harms_nothing_else(app_db: AppDatabase, app: Connection) -> None:
    bad = [queue(app, command, max_attempts=1) for command in BROKEN]
    good = queue(app, WHO.format("good"))
    run_due(app_db.app_url)
    assert {failed(app, jobid)[0][:2] for jobid in bad} <= {"42", "22", "54"}
    assert failed(app, good) is None
    assert app.execute("select what from public.effects").fetchall() == [("good",)]


def test_a_nul_is_refused_before_it_is_queued(app: Connection) -> None:
    with pytest.raises(psycopg.DataError):
        queue(app, "select 'a\x00b'")
    assert queued(app) == []


def test_a_command_of_a_megabyte_and_an_error_of_as_much(app_db: AppDatabase, app: Connection) -> None:
    big = queue(app, f"insert into public.effects (what) values ('{'x' * 1_000_000}')")
    loud = queue(app, "do $$ begin raise exception '%', repeat('y', 1000000); end $$", max_attempts=1)
    run_due(app_db.app_url)
    assert failed(app, big) is None
    assert app.execute("select length(what) from public.effects").fetchall() == [(1_000_000,)]
    assert len(failed(app, loud)[1]) == 10_000


def test_functions_of_the_queue_are_for_nobody_unless_granted(superuser: Connection, eve: Role) -> None:
    rows = superuser.execute(
        "select p.proname, p.prosecdef, coalesce(p.proconfig, '{}'),"
        " array(select distinct coalesce(a.grantee::regrole::text, 'nobody') from aclexplode(p.proacl) a"
        "       where a.grantee <> p.proowner order by 1)"
        " from pg_proc p where p.pronamespace = 'sumaclock'::regnamespace and p.proname = any (%s)",
        [FUNCTIONS],
    ).fetchall()
    assert len(rows) == len(FUNCTIONS)
    for name, definer, settings, grantees in rows:
        assert "-" not in grantees, f"{name} is open to PUBLIC"
        assert set(grantees) <= {"sumaclock_app", eve.name}, name
        assert not definer or settings == ["search_path=pg_catalog, pg_temp"], f"{name} has no pinned path"
