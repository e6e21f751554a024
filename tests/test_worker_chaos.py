"""Workers in processes of their own: many at once, killed, paused past their lease, and without their database."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.model import RunStatus
from sumaclock_dagster.queue import runs, workers
from tests import serving, worker_process
from tests.conftest import AppDatabase, TestCluster
from tests.waiting import until
from tests.workers import FAST, add_job, add_runs, await_ended, await_status, effects, make_effects, statuses

Processes = list["subprocess.Popen[str]"]


@pytest.fixture
def processes(app_db: AppDatabase, superuser: Connection) -> Iterator[Processes]:
    make_effects(superuser)
    started: Processes = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def spawn(app_db: AppDatabase, processes: Processes, count: int, **settings: object) -> None:
    with ThreadPoolExecutor(count) as pool:
        processes += pool.map(
            lambda _: serving.start(worker_process, app_db.app_url, **{**FAST, **settings}), range(count)
        )


@pytest.mark.parametrize("count", [2, 8])
def test_rule_3_each_of_10000_runs_is_executed_once(
    app_db: AppDatabase, app: Connection, processes: Processes, count: int
) -> None:
    spawn(app_db, processes, count)
    job = add_job(app, "effect")
    ids = [run_id for _ in range(20) for run_id in add_runs(app, job, 500)]
    await_ended(app, ids, 90)
    assert effects(app) == dict.fromkeys(ids, 1)
    assert statuses(app) == {"done": 10_000}
    assert app.execute("select max(attempts), max(lost) from sumaclock.cron_runs").fetchone() == (1, 0)
    busy = app.execute("select count(distinct claimed_by) from sumaclock.cron_runs").fetchone()
    assert busy is not None
    assert busy[0] >= 2


def test_rule_5_a_killed_workers_runs_are_released_and_executed_by_others(
    app_db: AppDatabase, app: Connection, processes: Processes
) -> None:
    # As many as it has threads for, so that it executes nothing else: how often each is executed is certain.
    spawn(app_db, processes, 1, handler_threads=3)
    slow = add_runs(app, add_job(app, "slow", {"seconds": 120}), 3)
    until(lambda: len(effects(app)) == len(slow), 15, "all handlers to be at work")
    spawn(app_db, processes, 1)
    job = add_job(app, "effect")
    quick = add_runs(app, job, 500)
    app.execute("update sumaclock.cron_jobs set payload = '{\"seconds\": 0}' where kind = 'slow'")
    processes[0].kill()
    await_ended(app, quick + slow, 30)
    assert effects(app) == {**dict.fromkeys(quick, 1), **dict.fromkeys(slow, 2)}
    for run_id in slow:
        run = runs.get_run(app, run_id)
        assert (run.status, run.attempts, run.lost, run.error) == (RunStatus.DONE, 2, 1, None)


def test_rule_5_after_three_lost_attempts_a_run_is_failed_with_a_message_that_says_so(
    app_db: AppDatabase, app: Connection, processes: Processes
) -> None:
    (run_id,) = add_runs(app, add_job(app, "slow", {"seconds": 120}))
    settings = app_db.settings.model_copy(update=FAST)
    for attempt in (1, 2, 3):
        spawn(app_db, processes, 1)
        until(lambda: effects(app).get(run_id) == attempt, 15, f"attempt {attempt}")  # noqa: B023
        processes[-1].kill()
        until(lambda: sum((lambda r: (r.pending, r.failed))(workers.release_stale(app, settings))), 15, "its release")
    run = runs.get_run(app, run_id)
    assert (run.status, run.attempts, run.lost) == (RunStatus.FAILED, 3, 3)
    assert run.error is not None
    assert run.error.startswith("Given up after 3 attempts that ended with their worker")
    assert "its session ended" in run.error


def test_rule_4_and_5_a_worker_paused_past_its_lease_changes_nothing_when_it_goes_on(
    app_db: AppDatabase, app: Connection, processes: Processes
) -> None:
    lease = {"lease_seconds": 2.0}
    spawn(app_db, processes, 1, **lease)
    paused = add_runs(app, add_job(app, "slow", {"seconds": 120}), 5)
    until(lambda: len(effects(app)) == len(paused), 15, "all handlers to be at work")
    os.kill(processes[0].pid, signal.SIGSTOP)
    app.execute("update sumaclock.cron_jobs set payload = '{\"seconds\": 0}' where kind = 'slow'")
    spawn(app_db, processes, 2, **lease)
    quick = add_runs(app, add_job(app, "effect"), 1000)
    await_ended(app, quick + paused, 40)
    assert effects(app) == {**dict.fromkeys(quick, 1), **dict.fromkeys(paused, 2)}
    before = app.execute("select * from sumaclock.cron_runs order by id").fetchall()
    os.kill(processes[0].pid, signal.SIGCONT)
    beat = "select heartbeat_at > now() - interval '1 second' from sumaclock.workers where pid = %s"
    until(lambda: app.execute(beat, [processes[0].pid]).fetchone() == (True,), 15, "the paused worker to go on")
    processes[0].terminate()
    assert processes[0].wait(20) == 0
    assert app.execute("select * from sumaclock.cron_runs order by id").fetchall() == before


def test_a_live_run_is_never_taken_back(app_db: AppDatabase, app: Connection, processes: Processes) -> None:
    spawn(app_db, processes, 1)
    (run_id,) = add_runs(app, add_job(app, "slow", {"seconds": 4}))
    await_status(app, run_id, "running")
    settings = app_db.settings.model_copy(update={**FAST, "dead_session_seconds": 0.0})
    while runs.get_run(app, run_id).status is RunStatus.RUNNING:
        released = workers.release_stale(app, settings)
        assert (released.pending, released.failed) == (0, 0)
    assert (runs.get_run(app, run_id).status, runs.get_run(app, run_id).attempts) == (RunStatus.DONE, 1)


def test_rule_12_every_connection_terminated_in_mid_drain(
    app_db: AppDatabase, app: Connection, superuser: Connection, processes: Processes
) -> None:
    spawn(app_db, processes, 2, dead_session_seconds=10.0, poll_seconds=60)
    job = add_job(app, "effect")
    ids = add_runs(app, job, 3000)
    kill = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where datname = current_database() and application_name like 'sumaclock worker%'"
    )
    for _ in range(10):
        until(lambda: superuser.execute(kill).fetchone() >= (1,), 10, "connections to terminate")
        ids += add_runs(app, job, 300)
    await_ended(app, ids, 40)
    assert statuses(app) == {"done": len(ids)}
    assert effects(app) == dict.fromkeys(ids, 1)
    late = add_runs(app, job, 1)
    await_ended(app, late, 10)


def test_the_listening_connection_alone_terminated(
    app_db: AppDatabase, app: Connection, superuser: Connection, processes: Processes
) -> None:
    spawn(app_db, processes, 1, dead_session_seconds=10.0, poll_seconds=60)
    listening = "application_name = 'sumaclock worker' and datname = current_database()"
    pid = superuser.execute(f"select pid from pg_stat_activity where {listening}").fetchone()
    assert pid is not None
    superuser.execute("select pg_terminate_backend(%s)", [pid[0]])
    (run_id,) = add_runs(app, add_job(app, "effect"))
    await_ended(app, [run_id], 15)
    assert effects(app) == {run_id: 1}


def test_postgresql_restarted_in_mid_drain(
    cluster: TestCluster, app_db: AppDatabase, app: Connection, processes: Processes
) -> None:
    spawn(app_db, processes, 2, dead_session_seconds=10.0)
    job = add_job(app, "effect")
    ids = add_runs(app, job, 8000)
    until(lambda: statuses(app).get("done", 0) > 500, 20, "the drain to be under way")
    cluster.private.stop()
    cluster.private.start()
    with connect(app_db.app_url, "test after restart") as again:
        left = statuses(again)
        assert left.get("done", 0) < 8000, "the restart came too late to test anything"
        await_ended(again, ids, 60)
        assert statuses(again) == {"done": 8000}
        counts = effects(again)
        attempts = dict(again.execute("select id, attempts from sumaclock.cron_runs").fetchall())
        # A handler whose own insert was cut off raised and was tried again; no other ran twice.
        assert set(counts) == set(ids)
        assert {i for i in ids if counts[i] > 1} <= {i for i in ids if attempts[i] > 1}
        assert sum(attempts[i] > 1 for i in ids) < 1500


def test_sigterm_gives_back_what_is_unfinished(app_db: AppDatabase, app: Connection, processes: Processes) -> None:
    spawn(app_db, processes, 1, grace_seconds=0.5)
    ids = add_runs(app, add_job(app, "slow", {"seconds": 60}), 15)
    await_status(app, ids[0], "running")
    processes[0].terminate()
    assert processes[0].wait(15) == 0
    after = [runs.get_run(app, run_id) for run_id in ids]
    assert {(run.status, run.attempts) for run in after} == {(RunStatus.PENDING, 0)}
    assert workers.live_workers(app) == []
