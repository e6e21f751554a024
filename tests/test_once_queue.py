"""The queue of one-off commands: what is refused, what runs how, and what becomes of failures. The tests are the
runners, in sessions of their own, except where a test is about pg_cron (test_once_clock.py)."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors

from sumaclock_dagster.db import Connection, connect
from tests.conftest import AppDatabase
from tests.once import (
    RUN,
    WATCH,
    failed,
    make_due,
    note_runners,
    queue,
    queued,
    run_due,
    runner_in_background,
)
from tests.waiting import until


@pytest.fixture(autouse=True)
def _runners(app: Connection, superuser: Connection) -> None:
    note_runners(app)
    superuser.execute(
        "create table public.effects (id bigint generated always as identity, what text,"
        " role text default current_user, path text default current_setting('search_path'));"
        "grant select, insert on public.effects to public"
    )


def effects(conn: Connection) -> list[str]:
    return [row[0] for row in conn.execute("select what from public.effects order by id").fetchall()]


def test_a_success_leaves_the_queue_together_with_its_effect(app_db: AppDatabase, app: Connection) -> None:
    ids = [queue(app, f"insert into public.effects (what) values ('{number}')") for number in range(3)]
    assert queued(app) == ids
    run_due(app_db.app_url)
    assert (queued(app), effects(app)) == ([], ["0", "1", "2"])
    assert app.execute("select distinct role from public.effects").fetchall() == [("sumaclock_app",)]


def test_a_queueing_transaction_that_rolls_back_queues_nothing(app_db: AppDatabase, app: Connection) -> None:
    with app.transaction(force_rollback=True):
        queue(app, "insert into public.effects (what) values ('ghost')")
    run_due(app_db.app_url)
    assert effects(app) == []


def test_the_callers_search_path_is_kept(app_db: AppDatabase, app: Connection) -> None:
    paths = ['"$user", public', "tenant_1, public", '"Odd ""name", public', ""]
    for path in paths:
        app.execute("select set_config('search_path', %s, false)", [path])
        queue(app, "insert into public.effects (what) values ('x')")
    app.execute("reset search_path")
    queue(app, "insert into public.effects (what) values ('y')", search_path="pg_catalog, public")
    run_due(app_db.app_url)
    rows = app.execute("select path from public.effects order by id").fetchall()
    assert [row[0] for row in rows] == [*paths, "pg_catalog, public"]


def test_a_failure_is_recorded_and_tried_again_no_sooner_than_10_seconds_later(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    jobid = queue(
        app,
        "do $$ begin raise exception 'no luck'"
        " using errcode = 'UE001', detail = 'the detail', hint = 'the hint'; end $$",
        max_attempts=3,
    )
    for attempt in (1, 2):
        run_due(app_db.app_url)
        row = app.execute(
            "select state, attempts, sqlstate, message, due_at - clock_timestamp() > interval '9 seconds'"
            " from sumaclock.job_queue_status where jobid = %s",
            [jobid],
        ).fetchone()
        assert row == ("retrying", attempt, "UE001", "no luck", True)
        run_due(app_db.app_url)
        assert app.execute("select attempts from sumaclock.job_queue").fetchall() == [(attempt,)]
        make_due(superuser)
    run_due(app_db.app_url)
    sqlstate, message, detail, hint, context, attempts = failed(app, jobid)
    assert (sqlstate, message, detail, hint, attempts) == ("UE001", "no luck", "the detail", "the hint", 3)
    assert "inline_code_block line 1 at RAISE" in context
    assert queued(app) == []


def test_five_attempts_are_the_default(app_db: AppDatabase, app: Connection, superuser: Connection) -> None:
    jobid = queue(app, "select 1 / 0")
    for _ in range(5):
        assert failed(app, jobid) is None
        make_due(superuser)
        run_due(app_db.app_url)
    assert failed(app, jobid)[::5] == ("22012", 5)


def test_priority_then_age_decides_and_run_after_waits(app_db: AppDatabase, app: Connection) -> None:
    for what, options in (
        ("old", {}),
        ("urgent", {"priority": 10}),
        ("later", {"run_after": "2999-01-01 00:00Z", "priority": 99}),
        ("idle", {"priority": -1}),
        ("young", {}),
    ):
        queue(app, f"insert into public.effects (what) values ('{what}')", **options)
    run_due(app_db.app_url)
    assert effects(app) == ["urgent", "old", "young", "idle"]
    assert app.execute("select state, priority from sumaclock.job_queue_status").fetchall() == [("delayed", 99)]


def test_a_dedup_key_is_unique_while_its_command_is_queued(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    first = queue(app, "insert into public.effects (what) values ('1')", dedup_key="k")
    assert queue(app, "insert into public.effects (what) values ('2')", dedup_key="k") == first
    assert queue(app, "insert into public.effects (what) values ('3')", dedup_key="other") != first
    run_due(app_db.app_url)
    assert effects(app) == ["1", "3"]
    assert queue(app, "select 1", dedup_key="k") > first


def test_two_transactions_with_one_dedup_key_queue_one_command(app_db: AppDatabase, app: Connection) -> None:
    ids: list[int] = []

    def second() -> None:
        with connect(app_db.app_url, "test second") as conn:
            ids.append(queue(conn, "select 2", dedup_key="k"))

    with app.transaction():
        ids.append(queue(app, "select 1", dedup_key="k"))
        thread = threading.Thread(target=second, daemon=True)
        thread.start()
        waits = "select 1 from pg_stat_activity where application_name = 'test second' and wait_event_type = 'Lock'"
        with connect(app_db.superuser_url, "test look") as look:
            until(lambda: look.execute(waits).fetchall(), what="the second to wait")
    thread.join(10)
    assert len(ids) == 2
    assert len(set(ids)) == 1


def test_a_command_over_its_timeout_is_cancelled_and_recorded(app_db: AppDatabase, app: Connection) -> None:
    jobid = queue(app, "select pg_sleep(60)", timeout=timedelta(seconds=1), max_attempts=1)
    after = queue(app, "insert into public.effects (what) values ('after')")
    with runner_in_background(app_db.app_url), connect(app_db.app_url, "test watcher") as watcher:

        def cancelled() -> object:
            watcher.execute(WATCH)
            return failed(app, jobid)

        sqlstate, message, *_ = until(cancelled, 20, "the command to be cancelled", poll_seconds=0.2)
    assert (sqlstate, message) == ("57014", "Cancelled: the command ran longer than its timeout of 00:00:01.")
    assert after not in queued(app)
    assert effects(app) == ["after"]


def test_cancel_once_removes_what_waits_and_cancels_what_runs(app_db: AppDatabase, app: Connection) -> None:
    waiting = queue(app, "select 1", run_after="2999-01-01 00:00Z")
    assert app.execute("select sumaclock.cancel_once(%s)", [waiting]).fetchall() == [("removed",)]
    running = queue(app, "select pg_sleep(60)")
    with runner_in_background(app_db.app_url), connect(app_db.app_url, "test watcher") as watcher:
        until(lambda: state(app, running) == "running", what="the command to run")
        assert app.execute("select sumaclock.cancel_once(%s)", [running]).fetchall() == [("cancelling",)]
        assert state(app, running) == "cancelling"
        watcher.execute(WATCH)
        until(lambda: failed(app, running), what="the command to be cancelled")
    assert failed(app, running)[:2] == ("57014", "Cancelled by cancel_once.")
    assert queued(app) == []
    for jobid in (waiting, running, 2**62):
        with pytest.raises(errors.NoDataFound, match="is queued"):
            app.execute("select sumaclock.cancel_once(%s)", [jobid])


def state(conn: Connection, jobid: int) -> str | None:
    row = conn.execute("select state from sumaclock.job_queue_status where jobid = %s", [jobid]).fetchone()
    return row[0] if row else None


def test_a_cancelled_statement_and_a_failed_assertion_are_recorded(app_db: AppDatabase, app: Connection) -> None:
    cancelled = queue(
        app, "do $$ begin perform pg_cancel_backend(pg_backend_pid()), pg_sleep(1); end $$", max_attempts=1
    )
    asserted = queue(app, "do $$ begin assert false, 'never'; end $$", max_attempts=1)
    run_due(app_db.app_url)
    assert failed(app, cancelled)[:2] == ("57014", "canceling statement due to user request")
    assert failed(app, asserted)[:2] == ("P0004", "never")


def test_a_statement_timeout_of_the_role_is_recorded(app_db: AppDatabase, app: Connection) -> None:
    jobid = queue(app, "select pg_sleep(30)", max_attempts=1)
    with connect(app_db.app_url, "test runner") as conn:
        conn.execute("set statement_timeout = '300ms'")
        conn.execute(RUN)
    assert failed(app, jobid)[:2] == ("57014", "canceling statement due to statement timeout")


def test_a_command_that_kills_its_session_counts_its_attempts_and_ends(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    jobid = queue(app, "select pg_terminate_backend(pg_backend_pid()), pg_sleep(5)", max_attempts=2)
    other = queue(app, "insert into public.effects (what) values ('other')", priority=-1)
    for attempt in (1, 2):
        with runner_in_background(app_db.app_url):
            pass
        assert app.execute(
            "select state, attempts from sumaclock.job_queue_status where jobid = %s", [jobid]
        ).fetchall() == [("lost", attempt)]
        with connect(app_db.app_url, "test watcher") as watcher:
            until(lambda: (watcher.execute(WATCH), state(app, jobid) != "lost")[1], what="the loss to be noticed")
        make_due(superuser) if attempt == 1 else None
    sqlstate, message, detail, hint, _, attempts = failed(app, jobid)
    assert (sqlstate, attempts) == ("08006", 2)
    assert "session of attempt 2 ended before its command did" in message
    assert "Process " in detail
    assert "cron.job_run_details" in hint
    run_due(app_db.app_url)
    assert other not in queued(app)


def test_a_runner_notices_a_lost_session_without_a_watcher(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    jobid = queue(app, "select pg_terminate_backend(pg_backend_pid()), pg_sleep(5)", max_attempts=1)
    with runner_in_background(app_db.app_url):
        pass
    until(lambda: (run_due(app_db.app_url), failed(app, jobid))[1], what="the loss to be noticed")
    assert failed(app, jobid)[0] == "08006"


def test_a_command_that_runs_is_not_taken_for_lost(app_db: AppDatabase, app: Connection) -> None:
    jobid = queue(app, "select pg_sleep(1.5)")
    with runner_in_background(app_db.app_url):
        until(lambda: state(app, jobid) == "running", what="the command to run")
        with connect(app_db.app_url, "test watcher") as watcher:
            for _ in range(20):
                watcher.execute(WATCH)
                run_due(app_db.app_url)
        assert app.execute("select attempts, message from sumaclock.job_queue").fetchall() in ([(1, None)], [])
    assert (queued(app), failed(app, jobid)) == ([], None)


def test_a_deferred_constraint_fails_its_command_and_no_other(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    superuser.execute(
        "create table public.parents (id int primary key);"
        "create table public.children (id int references public.parents deferrable initially deferred);"
        "grant all on public.parents, public.children to sumaclock_app"
    )
    bad = queue(app, "insert into public.children values (1)", max_attempts=1)
    good = queue(app, "insert into public.children values (2); insert into public.parents values (2)")
    run_due(app_db.app_url)
    assert failed(app, bad)[0] == "23503"
    assert good not in queued(app)
    assert app.execute("select id from public.children").fetchall() == [(2,)]


@pytest.mark.parametrize(
    "command",
    ["call public.commits()", "do $$ begin commit; end $$", "select 1; vacuum public.effects"],
)
def test_a_command_that_turns_out_to_need_no_transaction_fails_at_once_with_what_to_do(
    app_db: AppDatabase, app: Connection, superuser: Connection, command: str
) -> None:
    superuser.execute("create procedure public.commits() language plpgsql as $$ begin commit; end $$")
    jobid = queue(app, command)
    run_due(app_db.app_url)
    sqlstate, _, _, hint, _, attempts = failed(app, jobid)
    assert sqlstate in ("2D000", "25001")
    assert "once add --direct" in hint
    assert attempts == 1


REFUSED = [
    "vacuum",
    " \n\t-- a comment\n/* and * another */ VACUUM (analyze) t",
    "create unique index  concurrently i on t (a)",
    "CREATE INDEX CONCURRENTLY IF NOT EXISTS i on t (a)",
    "drop index concurrently i",
    "reindex table concurrently t",
    "reindex (verbose) database x",
    "alter table t detach partition p concurrently",
    "create database x",
    "drop database x",
    "alter system set work_mem = 1",
    "begin; select 1",
    "start transaction",
    "commit",
    "rollback",
    "savepoint a",
    "prepare transaction 'x'",
    "discard all",
    "cluster",
]


def test_what_cannot_run_inside_a_transaction_is_refused_when_queued(app: Connection) -> None:
    for command in REFUSED:
        with pytest.raises(errors.InvalidParameterValue, match="inside a transaction") as refused:
            queue(app, command)
        assert "once add --direct" in str(refused.value.diag.message_hint)
    assert queued(app) == []


HARMLESS = [
    "create index i on public.t (a)",
    "refresh materialized view concurrently public.v",
    "select 'vacuum'",
    "analyze",
    "insert into public.effects (what) values ('begin; commit')",
    "call public.begin_work()",
    "delete from public.vacuum_log",
    "cluster public.t using i",
    "commit_all",
]


def test_what_only_looks_like_it_is_queued(app: Connection) -> None:
    assert [queue(app, command) for command in HARMLESS] == queued(app)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"command": None}, "command takes 1 to"),
    ({"command": ""}, "command takes 1 to"),
    ({"command": " \n "}, "command takes 1 to"),
    ({"command": "x" * 10_000_001}, "command takes 1 to"),
    ({"max_attempts": 0}, "max_attempts must be 1 to 1000"),
    ({"max_attempts": None}, "max_attempts must be 1 to 1000"),
    ({"priority": None}, "priority must be a number"),
    ({"timeout": timedelta(0)}, "timeout must be 1 second"),
    ({"timeout": timedelta(days=31)}, "timeout must be 1 second"),
    ({"run_after": "infinity"}, "run_after must be a time"),
    ({"dedup_key": ""}, "dedup_key takes 1 to 200"),
    ({"note": "n" * 1001}, "note up to 1,000"),
]


def test_wrong_options_are_refused_with_what_is_right(app: Connection) -> None:
    for options, words in WRONG:
        with pytest.raises(errors.InvalidParameterValue, match=words) as refused:
            queue(app, **{"command": "select 1", **options})
        assert refused.value.diag.message_hint
    assert queued(app) == []


def test_a_role_without_runners_is_refused_and_silent_runners_are_a_warning(
    app: Connection, superuser: Connection
) -> None:
    notices: list[tuple[str | None, str | None]] = []
    app.add_notice_handler(lambda said: notices.append((said.severity, said.message_primary)))
    queue(app, "select 1")
    assert notices == []
    superuser.execute("update sumaclock.job_runners set enabled_at = now() - interval '3 minutes'")
    queue(app, "select 1")
    [(severity, text)] = notices
    assert severity == "WARNING"
    assert "no runner of role sumaclock_app has looked" in str(text)
    superuser.execute("update sumaclock.job_runners set looked_at = now() where slot = 0")
    queue(app, "select 1")
    assert len(notices) == 1
    app.execute("select sumaclock.note_runners(current_user, 0)")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="has no runners") as refused:
        queue(app, "select 1")
    assert "sumaclock once enable" in str(refused.value.diag.message_hint)


def test_retry_once_queues_a_failed_command_again(app_db: AppDatabase, app: Connection, superuser: Connection) -> None:
    jobid = queue(app, "insert into public.later values (1)", max_attempts=1, dedup_key="k", note="n", priority=3)
    run_due(app_db.app_url)
    assert failed(app, jobid)[0] == "42P01"
    superuser.execute("create table public.later (a int); grant all on public.later to sumaclock_app")
    [(again,)] = app.execute("select sumaclock.retry_once(%s)", [jobid]).fetchall()
    assert app.execute(
        "select jobid, attempts, max_attempts, dedup_key, note, priority from sumaclock.job_queue"
    ).fetchall() == [(again, 0, 1, "k", "n", 3)]
    run_due(app_db.app_url)
    assert (queued(app), failed(app, jobid)) == ([], None)
    with pytest.raises(errors.NoDataFound, match="has failed"):
        app.execute("select sumaclock.retry_once(%s)", [jobid])


def test_one_runner_a_slot(app_db: AppDatabase, app: Connection) -> None:
    long = queue(app, "select pg_sleep(2)")
    with connect(app_db.app_url, "test first") as first, connect(app_db.app_url, "test second") as second:
        thread = threading.Thread(target=lambda: first.execute("call sumaclock.run_jobs(slot => 1)"), daemon=True)
        thread.start()
        until(lambda: state(app, long) == "running", what="the first to run")
        waiting = queue(app, "select 1")
        second.execute("call sumaclock.run_jobs(slot => 1)")
        assert state(app, waiting) == "due"
        second.execute("call sumaclock.run_jobs(slot => 2)")
        assert state(app, waiting) is None
        thread.join(10)
    assert queued(app) == []


def test_a_runner_that_looks_again_runs_what_came_meanwhile_and_holds_no_lock_between(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    with connect(app_db.app_url, "test runner") as runner:
        [(second,)] = app.execute("select extract(second from now())::int").fetchall()
        # Until 12 seconds from now, counted from the beginning of the minute.
        looks = f"{second + 12} seconds"
        thread = threading.Thread(
            target=lambda: runner.execute(f"call sumaclock.run_jobs(slot => 1, look_for => '{looks}')"), daemon=True
        )
        thread.start()
        until(
            lambda: app.execute(
                "select 1 from sumaclock.job_runners where slot = 1 and looked_at is not null"
            ).fetchall(),
            what="the first look",
        )
        jobid = queue(app, "insert into public.effects (what) values ('meanwhile')")
        pid = runner.info.backend_pid
        held = "select from pg_locks where pid = %s and locktype = 'relation' and mode <> 'AccessShareLock'"
        until(lambda: not superuser.execute(held, [pid]).fetchall(), what="a moment without a lock, between two looks")
        until(lambda: jobid not in queued(app), 8, "the command to run")
        thread.join(20)
        assert not thread.is_alive()
    assert effects(app) == ["meanwhile"]


def test_a_runner_holds_back_vacuum_by_its_command_and_its_pause_and_by_nothing_before(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    def transaction() -> int:
        return int(superuser.execute("select pg_current_xact_id()::text::bigint").fetchall()[0][0])

    with connect(app_db.app_url, "test runner") as runner:
        pid = runner.info.backend_pid

        def work() -> None:
            with suppress(psycopg.OperationalError):
                runner.execute("call sumaclock.run_jobs(slot => 1, look_for => '2 minutes')")

        def holds_nothing_before(number: int) -> bool:
            rows = superuser.execute(
                "select coalesce(backend_xmin::text::bigint >= %s, true) from pg_stat_activity where pid = %s",
                [number, pid],
            ).fetchall()
            return rows == [(True,)]

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        looks = "select from sumaclock.job_runners where slot = 1 and looked_at is not null"
        until(lambda: app.execute(looks).fetchall(), 30, "the first look")
        before = transaction()
        long = queue(app, "select pg_sleep(600)", max_attempts=1)
        try:
            # The command has its snapshot to its end. Nothing is left of what the runner looked at before.
            until(lambda: not holds_nothing_before(transaction()), 30, "the command to run")
            assert holds_nothing_before(before)
            while_it_runs = transaction()
            app.execute("select sumaclock.cancel_once(%s)", [long])
            until(lambda: queued(app) == [], 30, "the command to end")
            until(lambda: holds_nothing_before(while_it_runs), 30, "the next look")
            assert thread.is_alive(), "it looks on"
        finally:
            superuser.execute("select pg_terminate_backend(%s)", [pid])
            thread.join(30)


def test_run_jobs_refuses_to_run_as_another_role_than_the_session(app_db: AppDatabase, superuser: Connection) -> None:
    superuser.execute("set role sumaclock_app")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="opened as"):
        superuser.execute(RUN)
    with pytest.raises(psycopg.Error, match="opened as"):
        superuser.execute(WATCH)


def test_failed_commands_are_pruned(app_db: AppDatabase, app: Connection, superuser: Connection) -> None:
    old, new = queue(app, "select 1/0", max_attempts=1), queue(app, "select 1/0", max_attempts=1)
    run_due(app_db.app_url)
    superuser.execute("update sumaclock.job_errors set failed_at = now() - interval '31 days' where jobid = %s", [old])
    assert app.execute("select sumaclock.prune_job_errors(30, 1000)").fetchall() == [(1,)]
    assert (failed(app, old), failed(app, new)[0]) == (None, "22012")
