"""System jobs: one run a period, whichever of several real workers comes first; never two at once."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sumaclock_dagster.db import Connection
from sumaclock_dagster.handlers import Handlers, load_handlers
from sumaclock_dagster.model import Failed, SumaclockError
from sumaclock_dagster.queue import system_jobs
from sumaclock_dagster.queue.system_jobs import list_system_jobs
from sumaclock_dagster.system_jobs import LONGEST_SECONDS, SystemRun
from tests import serving, system_job_process
from tests.conftest import AppDatabase
from tests.system_job_process import MAKE
from tests.waiting import until
from tests.workers import FAST, make_worker, running

# So long that no test sees it end.
LONG = LONGEST_SECONDS
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(app_db: AppDatabase, superuser: Connection) -> Iterator[Start]:
    """Starts workers in processes of their own; kills them at the end."""
    superuser.execute(MAKE)
    processes: list[subprocess.Popen[str]] = []

    def start_one(**settings: object) -> subprocess.Popen[str]:
        process = serving.start(system_job_process, app_db.app_url, **{**FAST, **settings})
        processes.append(process)
        return process

    yield start_one
    for process in processes:
        process.kill()
        process.wait()


def periods(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute("select period, attempt, pid, began, ended from public.periods order by began").fetchall()


def rows(app: Connection, name: str) -> list[tuple[Any, ...]]:
    """(attempts, whether ended, result, error) of a system job's periods, oldest first."""
    return app.execute(
        "select attempts, finished_at is not null, result, error from sumaclock.system_job_runs where name = %s"
        " order by period",
        [name],
    ).fetchall()


def ended(app: Connection, name: str, count: int = 1) -> list[tuple[Any, ...]]:
    return until(lambda: found if len(found := [row for row in rows(app, name) if row[1]]) >= count else [], 20, name)


# ---- the list in code


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "60", LONGEST_SECONDS + 1])
def test_a_period_out_of_bounds_is_refused(every: Any) -> None:
    with pytest.raises(SumaclockError, match="'purge': every_seconds must be a whole number"):
        Handlers().system_job("purge", every_seconds=every)(lambda run: None)


@pytest.mark.parametrize("name", ["", "two words", "x" * 101, "a\0b"])
def test_a_name_that_is_no_plain_name_is_refused(name: str) -> None:
    with pytest.raises(SumaclockError, match="the name must be"):
        Handlers().system_job(name, every_seconds=60)(lambda run: None)


def test_system_jobs_of_several_registries_come_together_and_a_name_has_one() -> None:
    mine, own = Handlers(), Handlers()
    mine.system_job("index_messages", every_seconds=5)(lambda run: None)
    own.system_job("purge", every_seconds=60)(lambda run: None)
    both = Handlers()
    both.include(mine)
    both.include(own)
    assert {name: job.every_seconds for name, job in both.system_jobs.items()} == {"index_messages": 5, "purge": 60}
    with pytest.raises(SumaclockError, match=r"'purge' exists twice: tests\.test_system_jobs"):
        both.system_job("purge", every_seconds=3600)(lambda run: None)


def test_loaded_registries_bring_their_system_jobs() -> None:
    loaded = load_handlers("tests.test_system_jobs:loadable", Handlers())
    assert list(loaded.system_jobs) == ["loadable"]


def loadable() -> Handlers:
    handlers = Handlers()
    handlers.system_job("loadable", every_seconds=3600)(lambda run: None)
    return handlers


def test_the_examples_in_the_document_are_system_jobs(app_db: AppDatabase, app: Connection) -> None:
    text = (Path(__file__).parent.parent / "docs" / "system_jobs.md").read_text()
    indexed: list[str] = []
    names: dict[str, Any] = {
        "delete_files_without_owner": lambda: 3,
        "unindexed_messages": lambda: ["one", "two"],
        "index": indexed.append,
    }
    exec(text.partition("```python\n")[2].partition("```")[0], names)  # noqa: S102  (our own document)
    handlers = names["handlers"]
    periods_of = {name: job.every_seconds for name, job in handlers.system_jobs.items()}
    assert periods_of == {"purge_orphaned_files": 3600, "index_new_messages": 5}
    with running(app_db, handlers):
        until(lambda: len([row for row in list_results(app) if row[1]]) >= 2, 60, "both to end")
    results = dict(list_results(app))
    assert results["purge_orphaned_files"] == {"deleted": 3}
    assert indexed[:2] == ["one", "two"]


def list_results(app: Connection) -> list[Any]:
    return app.execute(
        "select name, coalesce(result, 'true'::jsonb) from sumaclock.system_job_runs where finished_at is not null"
        " and error is null"
    ).fetchall()


# ---- with real workers


def test_many_workers_execute_one_run_a_period(app: Connection, start: Start) -> None:
    for _ in range(3):
        start(name="tick", every_seconds=1)
    until(lambda: len(periods(app)) >= 5, 30, "five periods")
    noted = periods(app)
    seen = [period for period, *_ in noted]
    assert len(set(seen)) == len(seen)
    assert {attempt for _, attempt, *_ in noted} == {1}
    assert all(period.microsecond == 0 for period in seen)
    assert [row[2] for row in ended(app, "tick", 4)][:4] == ["noted"] * 4


def test_a_job_that_overruns_its_period_overlaps_itself_nowhere(app: Connection, start: Start) -> None:
    for _ in range(2):
        start(name="slow", every_seconds=1, takes_seconds=1.6)
    until(lambda: len([row for row in periods(app) if row[4]]) >= 4, 40, "four ends")
    noted = periods(app)
    for before, after in pairwise(noted):
        assert before[4] is not None
        assert after[3] >= before[4]
        assert after[0] > before[0]


def test_the_period_of_a_killed_worker_is_executed_again(app: Connection, start: Start) -> None:
    killed = start(name="long", every_seconds=LONG, takes_seconds=60)
    until(lambda: periods(app), 20, "the first to begin")
    other = start(name="long", every_seconds=LONG)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    ((attempts, _, result, error),) = ended(app, "long")
    assert (attempts, result, error) == (2, "noted", None)
    assert [(attempt, pid) for _, attempt, pid, *_ in periods(app)] == [(1, killed.pid), (2, other.pid)]


def test_what_kills_its_worker_each_time_is_left_to_the_next_period(app: Connection, start: Start) -> None:
    for _ in range(3):
        assert start(name="deadly", every_seconds=LONG, kills=True).wait(30) == -signal.SIGKILL
    deadly = system_job_process.noting_job("", "deadly", LONG).system_jobs["deadly"]
    assert [look.is_open for look in system_jobs.look(app, [deadly])] == [False]
    # The server may notice a moment later that the worker which held the job's lock is gone.
    assert until(lambda: (taken := system_jobs.take(app, deadly, 1))[0] and taken) == (True, None)
    (state,) = list_system_jobs(app, [deadly])
    assert (state.word, state.error) == ("failed", "Its worker died with it 3 times; the next period tries again.")
    assert rows(app, "deadly") == [(3, False, None, None)]


@pytest.mark.parametrize("shift_seconds", [3600, -3600])
def test_rule_6_periods_are_the_databases(app: Connection, start: Start, shift_seconds: int) -> None:
    start(name="tick", every_seconds=2, clock_shift_seconds=shift_seconds)
    start(name="tick", every_seconds=2)
    until(lambda: len(periods(app)) >= 3, 30, "three periods")
    off = (
        "select max(extract(epoch from began - period))::float8, count(*) = count(distinct period) from public.periods"
    )
    ((late, single),) = app.execute(off).fetchall()
    assert single
    # The first period is the one in which the workers came.
    assert late < 10


def test_a_stopped_worker_gives_its_job_the_grace_time_and_another_takes_what_it_left(
    app: Connection, start: Start
) -> None:
    first = start(name="long", every_seconds=LONG, takes_seconds=60)
    until(lambda: periods(app), 20, "the first to begin")
    first.send_signal(signal.SIGTERM)
    assert first.wait(20) == 0
    assert rows(app, "long") == [(0, False, None, None)], "told to stop, it raised: that is no failure"
    start(name="long", every_seconds=LONG)
    ((attempts, _, result, error),) = ended(app, "long")
    assert (attempts, result, error) == (1, "noted", None)


# ---- with a worker in this process


def test_a_stop_waits_for_a_job_that_ends_within_the_grace_time(app_db: AppDatabase, app: Connection) -> None:
    handlers, begun = Handlers(), threading.Event()

    @handlers.system_job("polite", every_seconds=LONG)
    def polite(run: SystemRun) -> dict[str, bool]:
        begun.set()
        return {"told": run.cancelled.wait(20)}

    with running(app_db, handlers):
        assert begun.wait(20)
    assert rows(app, "polite") == [(1, True, {"told": True}, None)]


def test_a_job_that_ends_for_nobody_does_not_hold_its_worker_and_keeps_its_lock(
    app_db: AppDatabase, app: Connection
) -> None:
    handlers, begun, let_go = Handlers(), threading.Event(), threading.Event()

    @handlers.system_job("stubborn", every_seconds=LONG)
    def stubborn(run: SystemRun) -> None:
        begun.set()
        let_go.wait(60)

    held = "select count(*) from pg_catalog.pg_locks l join pg_catalog.pg_stat_activity a using (pid)"
    held += " where l.locktype = 'advisory' and a.application_name = 'sumaclock system jobs'"
    held += " and a.datname = current_database()"
    worker = make_worker(app_db, handlers, grace_seconds=0.5)
    worker.start()
    assert begun.wait(20)
    worker.stop("the test stops it")
    assert worker.wait(15)
    assert rows(app, "stubborn") == [(0, False, None, None)]
    assert app.execute(held).fetchone() == (1,), "while its thread lives, no other may execute it"
    let_go.set()
    until(lambda: app.execute(held).fetchone() == (0,), 15, "the lock to go with the thread")
    assert rows(app, "stubborn") == [(0, False, None, None)]


class Unspeakable(Exception):
    def __str__(self) -> str:
        return "nul \0, a lone \ud800 surrogate and " + "much " * 20_000


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    ("does", "told"),
    [
        (lambda run: _raise(ValueError("no disk")), "ValueError: no disk"),
        (lambda run: _raise(Unspeakable()), "Unspeakable: nul \ufffd, a lone ?"),
        (lambda run: _raise(SystemExit(3)), "SystemExit: 3"),
        (lambda run: Failed("3 files\0 stay"), "3 files\ufffd stay"),
    ],
)
def test_an_error_is_recorded_trimmed_and_storable(
    app_db: AppDatabase, app: Connection, does: Callable[[SystemRun], Any], told: str
) -> None:
    handlers = Handlers()
    handlers.system_job("broken", every_seconds=LONG)(does)
    with running(app_db, handlers):
        ((_, _, result, error),) = ended(app, "broken")
    assert result is None
    assert error.startswith(told)
    assert len(error) <= 20_000


def test_a_hostile_result_is_stored_and_one_broken_job_harms_itself_alone(app_db: AppDatabase, app: Connection) -> None:
    handlers = Handlers()
    handlers.system_job("broken", every_seconds=1)(lambda run: _raise(ValueError("each time")))
    handlers.system_job("nan", every_seconds=LONG)(lambda run: {"a\0b": float("nan"), "c": object})
    handlers.system_job("fine", every_seconds=1)(lambda run: run.every_seconds)
    with running(app_db, handlers):
        ((_, _, result, error),) = ended(app, "nan")
        fine = ended(app, "fine", 3)
        ended(app, "broken", 3)
    assert error is None
    assert result["a\ufffdb"] == "nan"
    assert {row[2] for row in fine} == {1}


def test_a_cut_connection_is_made_anew_and_the_job_goes_on(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    handlers, begun, let_go, told = Handlers(), threading.Event(), threading.Event(), []

    @handlers.system_job("steady", every_seconds=LONG)
    def steady(run: SystemRun) -> None:
        begun.set()
        let_go.wait(60)
        told.append(run.cancelled.is_set())

    cut = "select count(pg_terminate_backend(pid)) from pg_catalog.pg_stat_activity"
    cut += " where application_name = 'sumaclock system jobs' and datname = current_database()"
    with running(app_db, handlers):
        assert begun.wait(20)
        assert superuser.execute(cut).fetchone() == (1,)
        let_go.set()
        assert ended(app, "steady") == [(1, True, None, None)]
    assert told == [False]


def test_a_worker_that_lost_its_job_is_told_and_writes_nothing(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    handlers, begun, told = Handlers(), threading.Event(), threading.Event()

    @handlers.system_job("lost", every_seconds=LONG)
    def lose(run: SystemRun) -> str:
        begun.set()
        if run.cancelled.wait(30):
            told.set()
        return "too late"

    cut = "select count(pg_terminate_backend(pid)) from pg_catalog.pg_stat_activity"
    cut += " where application_name = 'sumaclock system jobs' and datname = current_database()"
    with running(app_db, handlers):
        assert begun.wait(20)
        app.execute("update sumaclock.system_job_runs set attempts = 2, worker_id = -1")
        assert superuser.execute(cut).fetchone() == (1,)
        assert told.wait(20)
    assert rows(app, "lost") == [(2, False, None, None)]


def test_without_system_jobs_there_is_no_session_and_no_thread(app_db: AppDatabase, app: Connection) -> None:
    sessions = "select count(*) from pg_catalog.pg_stat_activity where datname = current_database()"
    sessions += " and application_name = 'sumaclock system jobs'"
    with running(app_db, Handlers()):
        until(
            lambda: not [t for t in threading.enumerate() if t.name == "sumaclock-system jobs"], 5, "its thread to end"
        )
        assert app.execute(sessions).fetchone() == (0,)


# ---- what people see


def test_the_state_tells_last_run_error_next_and_what_is_overdue(app_db: AppDatabase, app: Connection) -> None:
    handlers = Handlers()
    for name, every in (("fine", 60), ("failed", 3600), ("stale", 60), ("never", LONG)):
        handlers.system_job(name, every_seconds=every)(lambda run: None)

    def states() -> dict[str, Any]:
        return {state.name: state for state in list_system_jobs(app, handlers.system_jobs.values())}

    app.execute(
        "insert into sumaclock.system_job_runs (name, period, worker_id, started_at, finished_at, error) values"
        " ('fine', now() - interval '1 minute', 1, now() - interval '60 s', now() - interval '58 s', null),"
        " ('failed', now() - interval '1 hour', 1, now() - interval '1 hour', now() - interval '59 min', 'no disk'),"
        " ('stale', now() - interval '1 hour', 1, now() - interval '1 hour', now() - interval '59 min', null)"
    )
    assert not any(state.is_overdue for state in states().values()), "there was no worker to execute them"
    with running(app_db, Handlers()):
        assert not any(state.is_overdue for state in states().values()), "it has just come"
        app.execute("update sumaclock.workers set started_at = started_at - interval '10 minutes'")
        found = states()
    assert {name for name, state in found.items() if state.is_overdue} == {"stale", "never"}
    assert found["failed"].error == "no disk"
    assert found["fine"].duration_seconds == pytest.approx(2)
    now: datetime = app.execute("select now()").fetchall()[0][0]
    assert all(state.next_period > now for state in found.values())
    assert (found["never"].started_at, found["never"].ended_at) == (None, None)
