"""Handlers of many: which runs they are given, and what becomes of those that they decline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sumaclock_dagster.db import Connection
from sumaclock_dagster.handlers import HandlerRun, Handlers, load_handlers
from sumaclock_dagster.model import Done, Failed, Outcome, RetryLater, RunStatus, Skip, SumaclockError
from sumaclock_dagster.queue.runs import get_run
from tests.conftest import AppDatabase
from tests.workers import add_job, add_runs, await_ended, running, statuses


class Log:
    """Who executed which runs: `together` in groups, `alone` one by one."""

    def __init__(self, decide: Callable[[HandlerRun], Outcome | None]) -> None:
        self.handlers = Handlers()
        self.together: list[list[int]] = []
        self.alone: list[int] = []

        @self.handlers.register("many", max_attempts=3, backoff_seconds=0.01)
        def one(run: HandlerRun) -> Any:
            self.alone.append(run.id)
            return {"alone": run.payload}

        @self.handlers.register_of_many("many")
        def several(runs: Sequence[HandlerRun]) -> list[Outcome | None]:
            self.together.append([run.id for run in runs])
            return [decide(run) for run in runs]

        @self.handlers.register("single")
        def single(run: HandlerRun) -> None: ...


def fired_at_once(app: Connection, *jobs: Any, times: int = 1) -> list[int]:
    """Runs of these jobs, all visible in the same moment."""
    with app.transaction():
        return [run for _ in range(times) for job in jobs for run in add_runs(app, job)]


def test_runs_of_one_claim_are_executed_together_and_others_one_by_one(app_db: AppDatabase, app: Connection) -> None:
    log = Log(lambda run: Done({"together": run.payload}))
    jobs = [add_job(app, "many", {"n": n}) for n in range(4)]
    runs = fired_at_once(app, jobs[0], add_job(app, "single"), jobs[1], jobs[2], add_job(app, "single"), jobs[3])
    with running(app_db, log.handlers):
        await_ended(app, runs)
    many = [runs[0], runs[2], runs[3], runs[5]]
    assert (log.together, log.alone) == ([many], [])
    assert [get_run(app, run).result for run in many] == [{"together": {"n": n}} for n in range(4)]
    assert statuses(app) == {"done": 6}


def test_a_run_that_comes_alone_goes_to_the_kinds_handler(app_db: AppDatabase, app: Connection) -> None:
    log = Log(lambda run: Done())
    with running(app_db, log.handlers):
        (run,) = add_runs(app, add_job(app, "many"))
        await_ended(app, [run])
    assert (log.together, log.alone) == ([], [run])


def test_what_it_declines_goes_to_the_kinds_handler(app_db: AppDatabase, app: Connection) -> None:
    log = Log(lambda run: None if run.payload["n"] % 2 else Done())
    runs = fired_at_once(app, *(add_job(app, "many", {"n": n}) for n in range(6)))
    with running(app_db, log.handlers):
        await_ended(app, runs)
    assert sorted(log.alone) == runs[1::2]
    assert [get_run(app, run).result for run in runs[1::2]] == [{"alone": {"n": n}} for n in (1, 3, 5)]
    assert {get_run(app, run).attempts for run in runs} == {1}


def test_each_outcome_is_its_runs_own(app_db: AppDatabase, app: Connection) -> None:
    outcomes = [Done(float("nan")), Failed("no"), Skip("nothing to do"), RetryLater(0.01, "later")]
    log = Log(lambda run: Done("at last") if run.attempt > 1 else outcomes[run.payload])
    runs = fired_at_once(app, *(add_job(app, "many", n) for n in range(4)))
    with running(app_db, log.handlers):
        await_ended(app, runs)
    ended = [get_run(app, run) for run in runs]
    assert [run.status.value for run in ended] == ["done", "failed", "skipped", "done"]
    assert [run.error for run in ended] == [None, "no", "nothing to do", None]
    assert [run.attempts for run in ended] == [1, 1, 1, 2]


@pytest.mark.parametrize("fault", ["raises", "exits", "too few"])
def test_where_it_breaks_every_run_goes_to_the_kinds_handler(
    app_db: AppDatabase, app: Connection, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(lambda run: Done())

    def broken(runs: Sequence[HandlerRun]) -> list[Outcome | None]:
        if fault == "too few":
            return [Done()]
        raise SystemExit(3) if fault == "exits" else RuntimeError("the database is away")

    log.handlers.of_many["many"] = broken
    runs = fired_at_once(app, *(add_job(app, "many", n) for n in range(3)))
    with running(app_db, log.handlers):
        await_ended(app, runs)
    assert sorted(log.alone) == runs
    assert "3 runs of kind many are executed one by one: " in caplog.text


def test_a_payload_that_python_cannot_read_fails_its_run_alone(app_db: AppDatabase, app: Connection) -> None:
    log = Log(lambda run: Done())
    bad, good = add_job(app, "many"), add_job(app, "many")
    app.execute(
        "update sumaclock.cron_jobs set payload = ('[1' || repeat('0', 5000) || ']')::jsonb where id = %s", [bad]
    )
    runs = fired_at_once(app, bad, good)
    with running(app_db, log.handlers):
        await_ended(app, runs)
    assert [get_run(app, run).status for run in runs] == [RunStatus.FAILED, RunStatus.DONE]


def test_runs_of_a_paused_job_are_not_given_to_it(app_db: AppDatabase, app: Connection) -> None:
    log = Log(lambda run: Done())
    runs = fired_at_once(app, add_job(app, "many", enabled=False), add_job(app, "many"), add_job(app, "many"))
    with running(app_db, log.handlers):
        await_ended(app, runs)
    assert log.together == [runs[1:]]
    assert get_run(app, runs[0]).error == "The job was paused after this run was fired."


def test_a_worker_that_stops_meanwhile_ends_what_it_began(app_db: AppDatabase, app: Connection) -> None:
    began, go = threading.Event(), threading.Event()

    def decide(run: HandlerRun) -> Outcome:
        began.set()
        go.wait(20)
        return Done()

    log = Log(decide)
    runs = fired_at_once(app, *(add_job(app, "many") for _ in range(3)))
    with running(app_db, log.handlers, grace_seconds=20) as worker:
        assert began.wait(20)
        worker.stop("the test stops it")
        go.set()
        assert worker.wait(20)
    assert (log.together, log.alone) == ([runs], [])
    assert statuses(app) == {"done": 3}


def test_a_handler_of_many_needs_a_handler_that_ends_by_itself() -> None:
    handlers = Handlers()
    handlers.register("timed", timeout_seconds=5)(lambda run: None)
    for kind in ("timed", "nowhere"):
        with pytest.raises(SumaclockError, match=f"Kind '{kind}' needs a handler without a time-out"):
            handlers.register_of_many(kind)


def test_handlers_of_many_come_along_when_registries_are_put_together() -> None:
    assert set(load_handlers("", Log(lambda run: None).handlers).of_many) == {"many"}
