"""What an adversarial review of the queue and the worker found, each fault with the smallest test that shows it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from psycopg import errors

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.handlers import HandlerRun, Handlers
from sumaclock_dagster.model import Failed, RetryLater, RunStatus, Skip
from sumaclock_dagster.queue import claims, runs, workers
from sumaclock_dagster.queue import watch as watch_module
from sumaclock_dagster.worker import claimer as claimer_module
from sumaclock_dagster.worker import keeper as keeper_module
from sumaclock_dagster.worker.pace import Pace
from tests.conftest import AppDatabase
from tests.relay import Relay
from tests.test_hostile_outcomes import Mute
from tests.waiting import until
from tests.workers import add_job, add_runs, await_ended, await_status, claim, make_worker, running, statuses


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
    if is_readable(app, job):
        # Newer Pythons read deeper nesting than older ones.
        assert (run.status, run.attempts) == (RunStatus.DONE, 1)
        return
    assert (run.status, run.attempts) == (RunStatus.FAILED, 1)
    assert run.error is not None
    assert run.error.startswith("The payload can't be read: ")
    assert runs.get_run(app, good).status is RunStatus.DONE


def is_readable(app: Connection, job: UUID) -> bool:
    row = app.execute("select payload::text from sumaclock.cron_jobs where id = %s", [job]).fetchone()
    assert row is not None
    try:
        json.loads(row[0])
    except (ValueError, RecursionError):
        return False
    return True


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
    real = claims.Claim.__call__

    def counted(claim: claims.Claim, worker_id: int, dagster_run_id: Any, batch: int) -> list[claims.Claimed]:
        looks.append(batch)
        return real(claim, worker_id, dagster_run_id, batch)

    monkeypatch.setattr(claims.Claim, "__call__", counted)
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


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers start in the pace that fast handlers lead to."""
    original = Pace.__init__

    def init(self: Pace, first: int, most: int, threads: int) -> None:
        original(self, first, most, threads)
        self.fast = True

    monkeypatch.setattr(Pace, "__init__", init)


@pytest.mark.usefixtures("fast")
def test_runs_that_wait_behind_slow_handlers_go_back_to_other_workers(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    go = threading.Event()
    handlers.register("slow")(lambda run: go.wait(30))
    ids = add_runs(app, add_job(app, "slow"), 100)
    try:
        with running(app_db, handlers, claim_batch=50, handler_threads=2):
            until(lambda: statuses(app) == {"running": 2, "pending": 98}, 10, "the waiting runs to be given back")
            with running(app_db, handlers, claim_batch=50, handler_threads=2):
                until(lambda: statuses(app) == {"running": 4, "pending": 96}, 10, "another worker to claim some")
                go.set()
                await_ended(app, ids)
    finally:
        go.set()
    assert app.execute("select max(attempts), max(lost) from sumaclock.cron_runs").fetchone() == (1, 0)


@pytest.mark.usefixtures("fast")
def test_a_worker_that_retires_executes_the_rest_in_all_its_threads(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    third, worker = threading.Event(), make_worker(app_db, handlers, handler_threads=3, claim_batch=2)

    @handlers.register("three")
    def three(run: HandlerRun) -> bool:
        if run.id == ids[0]:
            worker._retire("test")
        if run.id in ids[:2]:
            return third.wait(5)
        third.set()
        return True

    ids = add_runs(app, add_job(app, "three"), 20)
    worker.start()
    assert worker.wait(20)
    assert [runs.get_run(app, run_id).result for run_id in ids[:3]] == [True, True, True]


@pytest.mark.usefixtures("fast")
def test_a_run_whose_claim_was_lost_while_it_waited_is_not_executed(
    app_db: AppDatabase, app: Connection, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "RENEW_AGE_SECONDS", 0.1)
    monkeypatch.setattr(claimer_module, "WAIT_MOST_SECONDS", 60)
    executed: list[int] = []
    go = threading.Event()

    @handlers.register("queued")
    def queued(run: HandlerRun) -> None:
        executed.append(run.id)
        go.wait(20)

    first, second = add_runs(app, add_job(app, "queued"), 2)
    with running(app_db, handlers, handler_threads=1) as worker:
        until(lambda: executed == [first])
        lose(app, second)
        until(lambda: all(held.run.id != second for held in worker._held.open()), 5, "the loss to be noticed")
        go.set()
        await_ended(app, [first])
        (last,) = add_runs(app, add_job(app, "fine"))
        await_ended(app, [last])
    assert executed == [first]


def lose(app: Connection, run_id: int) -> None:
    """Take a claim away as the release of a silent worker does, and end the run as another worker would."""
    app.execute(
        "update sumaclock.cron_runs set attempts = attempts + 1, claimed_by = 0, status = 'done', finished_at = now()"
        " where id = %s",
        [run_id],
    )


def test_threads_that_still_execute_a_lost_claim_are_no_room_for_another(
    app_db: AppDatabase, app: Connection, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "RENEW_AGE_SECONDS", 0.1)
    go, told = threading.Event(), threading.Event()

    @handlers.register("deaf")
    def deaf(run: HandlerRun) -> None:
        run.cancelled.wait(20)
        told.set()
        go.wait(20)

    (lost,) = add_runs(app, add_job(app, "deaf"))
    with running(app_db, handlers, handler_threads=1, poll_seconds=30):
        await_status(app, lost, "running")
        lose(app, lost)
        assert told.wait(5)
        (waiting,) = add_runs(app, add_job(app, "fine"))
        go.wait(1.5)
        assert runs.get_run(app, waiting).status is RunStatus.PENDING, "no thread was free for it"
        go.set()
        await_ended(app, [waiting], 5)


def test_a_session_that_the_server_keeps_after_it_broke_does_not_keep_the_worker_out(
    app_db: AppDatabase, app: Connection, handlers: Handlers, tmp_path: Path
) -> None:
    with (
        Relay(app_db.app_url, tmp_path) as relay,
        running(replace(app_db, settings=relay.settings(app_db.settings)), handlers, poll_seconds=60),
    ):
        relay.break_client_sides()
        (run_id,) = add_runs(app, add_job(app, "fine"))
        await_ended(app, [run_id], 10)


def test_a_requested_worker_that_comes_too_late_leaves_at_once(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    with running(app_db, handlers, max_workers=1):
        requested = workers.request_worker(app, "test")
        late = make_worker(app_db, handlers, max_workers=1, worker_id=requested)
        late.start()
        assert late.wait(3), "one worker is the most, and it is there"
        assert late.end_reason == "there are enough workers without it"
        assert [row.id for row in workers.live_workers(app)] != [requested]


def test_a_locked_row_of_a_dead_worker_holds_up_neither_the_release_nor_the_heartbeat(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    dead = workers.request_worker(app, "test")
    ids = add_runs(app, add_job(app, "fine"), 2)
    with connect(app_db.app_url, "dying") as dying:
        assert workers.register(
            dying, dead, code_version="test", dagster_run_id=None, host="here", pid=1, life_seconds=60
        )
        assert len(claim(dying, dead, 10)) == 2
    app.execute("update sumaclock.workers set heartbeat_at = now() - interval '1 minute'")
    settings = app_db.settings.model_copy(update={"dead_session_seconds": 0.1})
    with connect(app_db.app_url, "somebody") as somebody:
        with somebody.transaction():
            somebody.execute("select from sumaclock.cron_runs where id = %s for update", [ids[0]])
            app.execute("set statement_timeout = '3s'")
            assert until(lambda: workers.release_dead(app, settings).pending) == 1
        assert until(lambda: workers.release_dead(app, settings).pending) == 1
    assert {runs.get_run(app, run_id).status for run_id in ids} == {RunStatus.PENDING}


def test_heartbeats_and_outcomes_of_one_worker_cannot_deadlock(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    worker_id = workers.request_worker(app, "test")
    many = add_runs(app, add_job(app, "fine"), 20_000)
    superuser.execute("analyze sumaclock.cron_runs")
    ids = many[:3]
    held = {run.id: run.attempt for run in claim(app, worker_id, 10)}
    backwards = [(run_id, held[run_id]) for run_id in reversed(ids)]
    ended = [claims.Ended(run_id, held[run_id], "done", 0, 1) for run_id in ids]
    with (
        connect(app_db.app_url, "blocker") as blocker,
        connect(app_db.app_url, "renewing") as renewing,
        connect(app_db.app_url, "finishing") as finishing,
        ThreadPoolExecutor(2) as pool,
    ):
        waiting = "select count(*) from pg_locks where not granted"
        with blocker.transaction():
            blocker.execute("select from sumaclock.cron_runs where id = %s for update", [ids[1]])
            renewed = pool.submit(claims.renew, renewing, worker_id, backwards)
            until(lambda: app.execute(waiting).fetchone() == (1,))
            finished = pool.submit(claims.finish, finishing, worker_id, ended)
            until(lambda: app.execute(waiting).fetchone() == (2,))
        assert finished.result(10) == set(ids)
        assert renewed.result(10) <= set(ids)


def test_a_live_run_is_kept_when_the_databases_clock_is_moved_ahead(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    go = threading.Event()
    handlers.register("long")(lambda run: go.wait(20))
    (run_id,) = add_runs(app, add_job(app, "long"))
    beaten = "select heartbeat_at > now() - interval '1 minute' from sumaclock.cron_runs"
    with running(app_db, handlers) as worker:
        await_status(app, run_id, "running")
        with app.transaction():
            # What the database and the worker see of such a move: signs of life and clock readings are of long ago.
            app.execute("update sumaclock.workers set heartbeat_at = heartbeat_at - interval '1 hour'")
            app.execute("update sumaclock.cron_runs set heartbeat_at = heartbeat_at - interval '1 hour'")
            worker._clock._offset -= 3600
            worker._keeper._silent_at = 0.0
        until(lambda: app.execute(beaten).fetchone() == (True,), 5, "the run's heartbeat")
        go.set()
        await_ended(app, [run_id])
    assert (runs.get_run(app, run_id).status, runs.get_run(app, run_id).attempts) == (RunStatus.DONE, 1)


def dead_worker_with_a_run(app: Connection, sign_of_life: str) -> int:
    """A worker without a session that claimed one run. Returns the run's id."""
    row = app.execute(
        "with w as (insert into sumaclock.workers (code_version, started_at, heartbeat_at, retires_at)"
        " values ('test', now(), now() + %s::interval, now() + interval '1 hour') returning id)"
        " insert into sumaclock.cron_runs (job_id, status, attempts, claimed_by, started_at, heartbeat_at)"
        " select %s, 'running', 1, id, now(), now() + %s::interval from w returning id",
        [sign_of_life, add_job(app, "fine"), sign_of_life],
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_the_sensor_calls_no_run_silent_before_the_workers_could_have_shown_a_sign_of_life(
    app_db: AppDatabase, app: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = app_db.settings.model_copy(update={"lease_seconds": 30, "min_workers": 0})
    run_id = dead_worker_with_a_run(app, "-1 minute")
    with connect(app_db.app_url, "frozen") as frozen:
        frozen.execute("select pg_advisory_lock(%s, (select max(id) from sumaclock.workers))", [workers.LOCK_CLASS])
        watch_module.watch(app, settings, "test", 1.5)
        assert runs.get_run(app, run_id).status is RunStatus.RUNNING
        monkeypatch.setattr(watch_module, "ALONE_SECONDS", 0)
        assert watch_module.watch(app, settings, "test", 1.5).released.pending == 1


def test_signs_of_life_from_before_the_clock_was_set_back_keep_nothing_waiting(
    app_db: AppDatabase, app: Connection
) -> None:
    run_id = dead_worker_with_a_run(app, "1 hour")
    workers.request_worker(app, "test")
    app.execute("update sumaclock.workers set requested_at = now() + interval '1 hour' where started_at is null")
    state = workers.pool_state(app, app_db.settings)
    assert (state.live, state.starting) == (0, 0)
    assert workers.workers_wanted(state, app_db.settings) == 1
    assert workers.release_dead(app, app_db.settings).pending == 1
    assert runs.get_run(app, run_id).status is RunStatus.PENDING


def test_an_outcome_that_came_after_the_run_was_given_up_is_not_reported_as_written(
    app_db: AppDatabase, app: Connection, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    go = threading.Event()
    handlers.register("long")(lambda run: go.wait(20))
    (run_id,) = add_runs(app, add_job(app, "long"))
    with running(app_db, handlers) as worker:
        await_status(app, run_id, "running")
        app.execute("update sumaclock.cron_runs set heartbeat_at = now() - interval '1 hour'")
        settings = app_db.settings.model_copy(update={"max_lost": 1})
        assert workers.release_silent(app, settings).failed == 1
        go.set()
        report = until(worker.take_report)
    assert report is not None
    assert report.counts == {("long", "claim lost"): 1}
    assert f"run {run_id}: its claim (attempt 1) was lost" in caplog.text
    assert runs.get_run(app, run_id).status is RunStatus.FAILED


def test_a_short_life_is_not_all_replacement(app_db: AppDatabase, app: Connection, handlers: Handlers) -> None:
    with running(app_db, handlers, worker_life_seconds=20):
        settings = app_db.settings.model_copy(update={"worker_life_seconds": 20})
        state = workers.pool_state(app, settings)
        assert (state.live, workers.workers_wanted(state, settings)) == (1, 0)
