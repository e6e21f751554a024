"""One worker in this process: claims, outcomes, policies, pauses, its own life and end."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any

import pytest

from sumaclock_dagster.db import Connection
from sumaclock_dagster.handlers import HandlerRun, Handlers
from sumaclock_dagster.model import Done, Failed, RetryLater, RunStatus, Skip
from sumaclock_dagster.queue import claims, runs, workers
from tests.conftest import AppDatabase
from tests.waiting import until
from tests.workers import add_job, add_runs, await_ended, await_status, claim, make_worker, running, statuses


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


def test_a_run_is_executed_and_its_result_is_stored(app_db: AppDatabase, app: Connection, handlers: Handlers) -> None:
    seen: list[HandlerRun] = []

    @handlers.register("hello")
    def hello(run: HandlerRun) -> dict[str, Any]:
        seen.append(run)
        run.log.info("hello")
        return {"said": run.payload["word"]}

    job = add_job(app, "hello", {"word": "good morning"})
    with running(app_db, handlers) as worker:
        (run_id,) = add_runs(app, job)
        await_ended(app, [run_id])
        run = runs.get_run(app, run_id)
    assert (run.status, run.result, run.error, run.attempts) == (RunStatus.DONE, {"said": "good morning"}, None, 1)
    assert run.started_at is not None
    assert run.finished_at is not None
    assert run.scheduled_at <= run.started_at <= run.finished_at
    assert run.claimed_by == worker.worker_id
    assert run.dagster_run_id is not None
    assert (seen[0].organization_id, seen[0].user_id, seen[0].job_id) == ("acme", "ada", job)
    assert seen[0].scheduled_at == run.scheduled_at
    assert seen[0].idempotency_key == f"cron_run:{run_id}"
    report = worker.take_report()
    assert report is not None
    assert report.counts == {("hello", "done"): 1}
    assert report.firings[0].run_id == run_id
    assert 0 <= report.firings[0].lateness_seconds < 61


def test_outcomes_as_values(app_db: AppDatabase, app: Connection, handlers: Handlers) -> None:
    values: dict[str, Any] = {"done": Done([1]), "failed": Failed("no money"), "skip": Skip("a holiday")}

    @handlers.register("value")
    def value(run: HandlerRun) -> Any:
        return values[run.payload["outcome"]]

    ids = {name: add_runs(app, add_job(app, "value", {"outcome": name}))[0] for name in values}
    with running(app_db, handlers):
        await_ended(app, list(ids.values()))
    got = {name: runs.get_run(app, run_id) for name, run_id in ids.items()}
    assert {name: (run.status.value, run.result, run.error) for name, run in got.items()} == {
        "done": ("done", [1], None),
        "failed": ("failed", None, "no money"),
        "skip": ("skipped", None, "a holiday"),
    }


def test_retry_later_comes_again_when_due_and_is_bounded(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    attempts: list[int] = []

    @handlers.register("later")
    def later(run: HandlerRun) -> RetryLater:
        attempts.append(run.attempt)
        return RetryLater(0.05, "the bank is closed")

    (run_id,) = add_runs(app, add_job(app, "later"))
    with running(app_db, handlers, poll_seconds=30):
        await_ended(app, [run_id])
    run = runs.get_run(app, run_id)
    assert attempts == [1, 2, 3]
    assert (run.status, run.error) == (RunStatus.FAILED, "Given up after 3 attempts: the bank is closed")


def test_a_raise_fails_at_once_by_default_and_is_retried_with_backoff_by_policy(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    times: list[float] = []

    @handlers.register("once")
    def once(run: HandlerRun) -> None:
        raise ValueError("boom")

    @handlers.register("thrice", max_attempts=3, backoff_seconds=0.2)
    def thrice(run: HandlerRun) -> str:
        times.append(monotonic())
        if run.attempt < 3:
            raise ValueError("not yet")
        return "at last"

    (one,) = add_runs(app, add_job(app, "once"))
    (three,) = add_runs(app, add_job(app, "thrice"))
    with running(app_db, handlers) as worker:
        await_ended(app, [one, three])
    first, last = runs.get_run(app, one), runs.get_run(app, three)
    assert (first.status, first.attempts) == (RunStatus.FAILED, 1)
    assert first.error is not None
    assert first.error.startswith("ValueError: boom\n")
    assert 'raise ValueError("boom")' in first.error
    assert "hands.py" not in first.error
    assert (last.status, last.result, last.attempts, last.error) == (RunStatus.DONE, "at last", 3, None)
    assert times[1] - times[0] >= 0.2
    assert times[2] - times[1] >= 0.4
    report = worker.take_report()
    assert report is not None
    assert report.counts == {("once", "failed"): 1, ("thrice", "retry"): 2, ("thrice", "done"): 1}
    assert [line.run_id for line in report.failures] == [one]


def test_rule_13_an_unknown_kind_fails_alone(app_db: AppDatabase, app: Connection, handlers: Handlers) -> None:
    handlers.register("known")(lambda run: "fine")
    (bad,) = add_runs(app, add_job(app, "unknown"))
    (good,) = add_runs(app, add_job(app, "known"))
    with running(app_db, handlers):
        await_ended(app, [bad, good])
    assert runs.get_run(app, bad).error == "No handler for kind 'unknown'"
    assert runs.get_run(app, good).status is RunStatus.DONE


def test_the_message_for_an_unknown_kind_is_configurable(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    (run_id,) = add_runs(app, add_job(app, "pago"))
    with running(app_db, handlers, no_handler_message="No hay handler para '{kind}'"):
        await_ended(app, [run_id])
    assert runs.get_run(app, run_id).error == "No hay handler para 'pago'"


def test_a_paused_jobs_firing_is_skipped_and_a_manual_one_is_not(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    handlers.register("work")(lambda run: None)
    job = add_job(app, "work", enabled=False)
    (fired,) = add_runs(app, job)
    manual = runs.fire(app, job)
    with running(app_db, handlers):
        await_ended(app, [fired, manual])
    skipped = runs.get_run(app, fired)
    assert (skipped.status, skipped.error) == (
        RunStatus.SKIPPED,
        "The job was paused after this run was fired.",
    )
    assert runs.get_run(app, manual).status is RunStatus.DONE


def test_a_timed_out_run_fails_and_its_worker_finishes_the_rest_and_retires(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    release, told = threading.Event(), threading.Event()

    @handlers.register("stuck", timeout_seconds=0.3)
    def stuck(run: HandlerRun) -> None:
        run.cancelled.wait(10)
        told.set()
        release.wait(20)

    @handlers.register("steady")
    def steady(run: HandlerRun) -> str:
        threading.Event().wait(0.8)
        return "steady"

    (bad,) = add_runs(app, add_job(app, "stuck"))
    good = add_runs(app, add_job(app, "steady"), 3)
    worker = make_worker(app_db, handlers, handler_threads=2)
    worker.start()
    try:
        assert worker.wait(15), "a worker with a stuck thread must retire"
        assert told.is_set()
        run = runs.get_run(app, bad)
        assert (run.status, run.error) == (RunStatus.FAILED, "The handler timed out after 0.3 s.")
        assert "timed out" in worker.end_reason
        executed = [runs.get_run(app, run_id).status.value for run_id in good]
        assert executed.count("done") >= 1
        assert set(executed) <= {"done", "pending"}
        assert statuses(app).get("running", 0) == 0
    finally:
        release.set()


def test_stop_gives_back_what_is_unfinished_without_counting_the_attempt(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    started, cancelled = threading.Event(), threading.Event()

    @handlers.register("long")
    def long(run: HandlerRun) -> None:
        started.set()
        run.cancelled.wait(30)
        cancelled.set()

    ids = add_runs(app, add_job(app, "long"), 5)
    worker = make_worker(app_db, handlers, handler_threads=2, grace_seconds=0.3)
    worker.start()
    assert started.wait(10)
    worker.stop("SIGTERM")
    assert worker.wait(10)
    assert cancelled.wait(5)
    after = [runs.get_run(app, run_id) for run_id in ids]
    assert {(run.status, run.attempts, run.claimed_by) for run in after} == {(RunStatus.PENDING, 0, None)}
    assert workers.live_workers(app) == []


def test_stop_lets_handlers_finish_within_the_grace_time(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    started, go = threading.Event(), threading.Event()

    @handlers.register("short")
    def short(run: HandlerRun) -> str:
        started.set()
        go.wait(10)
        return "finished"

    (run_id,) = add_runs(app, add_job(app, "short"))
    worker = make_worker(app_db, handlers, grace_seconds=10)
    worker.start()
    assert started.wait(10)
    worker.stop("SIGTERM")
    (later,) = add_runs(app, add_job(app, "short"))
    go.set()
    assert worker.wait(10)
    assert runs.get_run(app, run_id).result == "finished"
    assert runs.get_run(app, later).attempts == 0


def test_rule_4_a_worker_that_lost_its_claim_changes_nothing_and_its_handler_is_told(
    app_db: AppDatabase, app: Connection, handlers: Handlers, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("sumaclock_dagster.worker.keeper.RENEW_AGE_SECONDS", 0.2)
    started, told = threading.Event(), threading.Event()

    @handlers.register("claimed")
    def claimed(run: HandlerRun) -> str:
        started.set()
        if run.cancelled.wait(15):
            told.set()
        return "from the first"

    (run_id,) = add_runs(app, add_job(app, "claimed"))
    with running(app_db, handlers) as worker:
        assert started.wait(10)
        other_id = workers.request_worker(app, "test")
        assert workers.register(
            app, other_id, code_version="test", dagster_run_id=None, host="here", pid=1, life_seconds=60
        )
        with app.transaction():
            app.execute("update sumaclock.cron_runs set status = 'pending', claimed_by = null, started_at = null")
            other = claim(app, other_id, 10)
        assert [run.attempt for run in other] == [2]
        assert told.wait(10), "the handler must be told that its claim is lost"
        end = claims.Ended(run_id, 1, "done", 0, 1, '"stale"')
        assert claims.finish(app, worker.worker_id, [end]) == set()
        assert claims.retry(app, worker.worker_id, [claims.Retried(run_id, 1, 0, "x")]) == set()
        assert claims.give_back(app, worker.worker_id, [(run_id, 1)]) == set()
        mine = claims.Ended(run_id, 2, "done", 0, 1, '"from the second"')
        assert claims.finish(app, other_id, [mine]) == {run_id}
    run = runs.get_run(app, run_id)
    assert (run.status, run.result, run.attempts) == (RunStatus.DONE, "from the second", 2)
    assert f"run {run_id}: its claim (attempt 1) was lost" in caplog.text


def test_a_worker_retires_at_the_end_of_its_life_and_after_new_code(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    old = make_worker(app_db, handlers, worker_life_seconds=0.5)
    old.start()
    assert old.wait(10)
    assert old.end_reason == "its time is over"
    steady = make_worker(app_db, handlers)
    steady.start()
    assert workers.retire_old_code(app, "test", notice_seconds=0) == 0
    assert not steady.wait(0.5)
    assert workers.retire_old_code(app, "newer", notice_seconds=0) == 1
    assert steady.wait(10)


def test_new_code_of_one_code_location_leaves_the_workers_of_another(app: Connection) -> None:
    """Two code locations with sumaclock on one app database would retire each other's workers without end."""
    mine, others, nobodys = (workers.request_worker(app, "old", name) for name in ("reports", "etl", None))
    for worker_id in (mine, others, nobodys):
        assert workers.register(
            app, worker_id, code_version="old", dagster_run_id=None, host="here", pid=1, life_seconds=3600
        )
    assert workers.other_locations(app, "reports") == ["etl"]
    assert workers.retire_old_code(app, "new", "reports", notice_seconds=0) == 2
    retired = app.execute("select id from sumaclock.workers where retires_at <= now() order by id").fetchall()
    assert [row[0] for row in retired] == [mine, nobodys]


def test_surplus_workers_leave_after_lingering_and_the_minimum_stays(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    three = [make_worker(app_db, handlers, linger_seconds=0.5, min_workers=1) for _ in range(3)]
    for worker in three:
        worker.start()
    try:
        until(lambda: sum(w.wait(0) for w in three) == 2, 15, "two of three workers to leave")
        left = [w for w in three if not w.wait(0)]
        assert not left[0].wait(1.5), "the last worker must stay"
        assert len(workers.live_workers(app)) == 1
    finally:
        for worker in three:
            worker.stop("the test is over")
            assert worker.wait(10)


def test_a_worker_lives_from_its_registration_on_not_from_its_lock(app: Connection) -> None:
    worker_id = workers.request_worker(app, "test")
    app.execute("select pg_advisory_lock(%s, %s)", [workers.LOCK_CLASS, worker_id])
    assert workers.live_workers(app) == []
    assert workers.register(
        app, worker_id, code_version="test", dagster_run_id=None, host="here", pid=1, life_seconds=3600
    )
    assert [worker.id for worker in workers.live_workers(app)] == [worker_id]


def test_a_claiming_thread_that_gets_its_turn_after_the_end_does_not_register_the_worker_anew(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    with running(app_db, handlers) as worker:
        pass
    worker._claimer.run()
    assert worker._claimer._take_turn() is None
    assert workers.live_workers(app) == []


def test_a_backlog_is_drained_in_growing_batches(app_db: AppDatabase, app: Connection, handlers: Handlers) -> None:
    handlers.register("noop")(lambda run: None)
    ids = add_runs(app, add_job(app, "noop"), 3000)
    with running(app_db, handlers) as worker:
        await_ended(app, ids, 30)
        assert worker._pace.batch > 10
    assert statuses(app) == {"done": 3000}
    assert app.execute("select distinct attempts from sumaclock.cron_runs").fetchall() == [(1,)]


def test_slow_handlers_run_side_by_side_and_are_not_hoarded(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    at_once, most = [0], [0]
    lock, full, go = threading.Lock(), threading.Event(), threading.Event()

    @handlers.register("slow")
    def slow(run: HandlerRun) -> None:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
            if at_once[0] == 4:
                full.set()
        go.wait(20)
        with lock:
            at_once[0] -= 1

    ids = add_runs(app, add_job(app, "slow"), 12)
    with running(app_db, handlers, handler_threads=4):
        assert full.wait(10)
        assert statuses(app) == {"running": 4, "pending": 8}
        go.set()
        await_ended(app, ids)
    assert most[0] == 4


def test_an_outcome_reaches_the_database_while_other_handlers_go_on(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    go = threading.Event()
    handlers.register("quick")(lambda run: None)
    handlers.register("long")(lambda run: go.wait(30))
    slow = add_runs(app, add_job(app, "long"), 2)
    with running(app_db, handlers):
        await_status(app, slow[0], "running")
        quick = add_runs(app, add_job(app, "quick"))
        await_ended(app, quick)
        assert runs.get_run(app, slow[0]).status is RunStatus.RUNNING
        go.set()


def test_a_retried_run_keeps_its_idempotency_key_and_history_of_lost_attempts_ends(
    app_db: AppDatabase, app: Connection, handlers: Handlers
) -> None:
    keys: list[str] = []

    @handlers.register("flaky")
    def flaky(run: HandlerRun) -> str:
        keys.append(run.idempotency_key)
        if len(keys) == 1:
            raise RuntimeError("the first time")
        return "ok"

    (run_id,) = add_runs(app, add_job(app, "flaky"))
    with running(app_db, handlers):
        await_status(app, run_id, "failed")
        runs.retry_run(app, run_id)
        await_status(app, run_id, "done")
    assert keys == [f"cron_run:{run_id}"] * 2
    with pytest.raises(Exception, match="only a failed or skipped run"):
        runs.retry_run(app, run_id)
