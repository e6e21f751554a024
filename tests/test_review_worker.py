"""What an adversarial review of the queue and the worker found, each fault with the smallest test that shows it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.model import Failed, RetryLater, RunStatus, Skip
from sumaclock_dagster.queue import claims, runs, workers
from sumaclock_dagster.worker import claimer as claimer_module
from tests.conftest import AppDatabase
from tests.test_hostile_outcomes import Mute
from tests.waiting import until
from tests.workers import add_job, add_runs, await_ended, await_status, make_worker, running


@pytest.fixture
def handlers() -> Handlers:
    made = Handlers()
    made.register("fine")(lambda run: "fine")
    return made


@pytest.mark.parametrize(
    "payload",
    ["'{\"n\": 1' || repeat('0', 5000) || '}'", "repeat('[', 3000) || repeat(']', 3000)"],
    ids=["digits", "depth"],
)
def test_a_payload_that_python_cannot_read_fails_its_run_alone(
    app_db: AppDatabase, app: Connection, handlers: Handlers, payload: str
) -> None:
    job = add_job(app, "fine")
    app.execute(f"update sumaclock.cron_jobs set payload = ({payload})::jsonb".encode())
    (bad,) = add_runs(app, job)
    (good,) = add_runs(app, add_job(app, "fine"))
    with running(app_db, handlers) as worker:
        await_ended(app, [bad, good])
        assert not worker.wait(0)
    run = runs.get_run(app, bad)
    assert (run.status, run.attempts) == (RunStatus.FAILED, 1)
    assert run.error is not None
    assert run.error.startswith("The payload can't be read: ")
    assert runs.get_run(app, good).status is RunStatus.DONE


@pytest.mark.parametrize("column", ["scheduled_at", "due_at"])
@pytest.mark.parametrize("value", ["infinity", "-infinity", "12000-01-01"])
def test_a_time_that_python_cannot_hold_is_refused_before_it_can_stop_the_workers(
    app: Connection, column: str, value: str
) -> None:
    job = add_job(app, "fine")
    with pytest.raises(errors.CheckViolation):
        app.execute(f"insert into sumaclock.cron_runs (job_id, {column}) values (%s, %s)".encode(), [job, value])


HOSTILE: dict[str, tuple[Callable[[], Any], RunStatus]] = {
    "mute reason": (lambda: Skip(Mute()), RunStatus.FAILED),  # type: ignore[arg-type]
    "mute error": (lambda: Failed(Mute()), RunStatus.FAILED),  # type: ignore[arg-type]
    "delay of 400 digits": (lambda: RetryLater(10**400), RunStatus.PENDING),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_outcome_that_cannot_be_read_ends_its_run_and_not_the_worker(
    app_db: AppDatabase, app: Connection, handlers: Handlers, name: str
) -> None:
    made, status = HOSTILE[name]
    handlers.register("hostile")(lambda run: made())
    (bad,) = add_runs(app, add_job(app, "hostile"))
    with running(app_db, handlers):
        await_status(app, bad, status.value)
        (good,) = add_runs(app, add_job(app, "fine"))
        await_ended(app, [good])
        assert runs.get_run(app, bad).attempts == 1


def test_a_worker_with_a_long_handler_does_not_look_all_the_time(
    app_db: AppDatabase, app: Connection, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    real = claims.claim

    def counted(conn: Connection, worker_id: int, dagster_run_id: Any, batch: int) -> list[claims.Claimed]:
        looks.append(batch)
        return real(conn, worker_id, dagster_run_id, batch)

    monkeypatch.setattr(claimer_module.claims, "claim", counted)
    go = threading.Event()
    handlers.register("long")(lambda run: go.wait(20))
    (run_id,) = add_runs(app, add_job(app, "long"))
    with running(app_db, handlers, linger_seconds=0.1, poll_seconds=30):
        await_status(app, run_id, "running")
        before = len(looks)
        go.wait(1.5)
        assert len(looks) - before <= 5
        go.set()


def test_a_worker_that_asks_whether_it_is_one_too_many_never_waits_for_another(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    with connect(app_db.app_url, "stuck") as stuck, running(app_db, handlers, linger_seconds=0, poll_seconds=0.1):
        with stuck.transaction():
            stuck.execute("select pg_advisory_xact_lock(%s, 0)", [workers.LOCK_CLASS])
            for _ in range(3):
                (run_id,) = add_runs(app, add_job(app, "fine"))
                await_ended(app, [run_id], 5)
        assert runs.get_run(app, run_id).status is RunStatus.DONE


def test_a_worker_that_retires_with_handlers_at_work_says_so_and_is_replaced(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    go = threading.Event()
    handlers.register("long")(lambda run: go.wait(20))
    handlers.register("stuck", timeout_seconds=0.1)(lambda run: go.wait(20))
    settings = app_db.settings.model_copy(update={"max_workers": 1})
    (long,) = add_runs(app, add_job(app, "long"))
    worker = make_worker(app_db, handlers, heartbeat_seconds=5)
    worker.start()
    try:
        await_status(app, long, "running")
        with connect(app_db.app_url, "listener") as listener:
            listener.execute("listen sumaclock_workers")
            (stuck,) = add_runs(app, add_job(app, "stuck"))
            await_ended(app, [stuck])
            assert list(listener.notifies(timeout=3, stop_after=1))
            state = workers.pool_state(app, settings)
        assert (state.live, state.retiring) == (0, 1)
        assert workers.workers_wanted(state, settings) == 1
    finally:
        go.set()
        assert worker.wait(10)
    assert until(lambda: runs.get_run(app, long).status is RunStatus.DONE)
