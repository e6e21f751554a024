"""A worker killed between each two statements of what it does for a task: every point, one after another.

Each time the run is released, and what it was for has happened exactly once, with the right clock job.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from uuid import UUID

import pytest

from sumaclock_dagster.calendar import pg_cron_for
from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.model import Run, RunStatus
from sumaclock_dagster.queue.runs import get_run, list_runs
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import Task, TaskStatus
from tests import task_process
from tests.conftest import AppDatabase, TestCluster
from tests.tasks import (
    EAGER,
    add_task,
    call,
    clock_schedule,
    core_api_keys,
    fire,
    is_enabled,
    make_due,
    settled,
    task_database,
    task_effects,
    task_worker,
)
from tests.workers import await_ended

# More exchanges than anything that is done for a task takes.
MOST = 40
# What one loses is not for the next to execute, and however often a slow machine loses it, it is not given up.
PATIENT = {"dead_session_seconds": 20, "max_lost": 100}
SCENARIOS = ("firing", "instant", "early", "manual", "creation", "edit", "pause", "deletion")
# Tasks by the number of exchanges after which the worker was killed over them, each with its run; the last was not.
Struck = list[tuple[UUID, int]]


@pytest.fixture(scope="module")
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    with task_database(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def struck(app_db: AppDatabase) -> Iterator[dict[str, Struck]]:
    """Every point of every scenario, and then one worker that lives."""
    with connect(app_db.app_url, "test crash") as app:
        with task_worker(app_db):
            spare = {scenario: make_tasks(app, scenario) for scenario in SCENARIOS if scenario != "creation"}
            for task in (task for tasks in spare.values() for task in tasks):
                assert settled(app, task, 30).next_run_at is not None
        process = task_process.spawn("crash", app_db, **EAGER, **PATIENT)
        try:
            struck = {name: strike(app_db, app, process, name, spare.get(name, [])) for name in SCENARIOS}
        finally:
            process.kill()
            process.wait()
        with task_worker(app_db, max_lost=PATIENT["max_lost"]):
            await_ended(app, [run for tasks in struck.values() for _, run in tasks], 60)
            yield struck


def make_tasks(app: Connection, scenario: str) -> list[UUID]:
    schedule = {"instant": in_a_week(app)} if scenario == "instant" else {"cron": "30 8 * * 1"}
    with app.transaction():
        return [add_task(app, **schedule) for _ in range(MOST)]


def strike(
    app_db: AppDatabase, app: Connection, process: subprocess.Popen[str], scenario: str, spare: list[UUID]
) -> Struck:
    """Kill a worker after each number of exchanges, until one lives to the end of its run."""
    struck: Struck = []
    for after in range(MOST):
        task = spare[after] if spare else add_task(app)
        struck.append((task, start(app_db, app, scenario, task)))
        if not task_process.crashes(process, after):
            return struck
    raise AssertionError(f"{MOST} exchanges were not enough for one run")


def in_a_week(app: Connection) -> object:
    row = app.execute("select date_trunc('minute', now()) + interval '7 days'").fetchone()
    assert row is not None
    return row[0]


def forget_place(app_db: AppDatabase, app: Connection, task: UUID) -> None:
    """Let its clock job be where it fired."""
    with open_clock(app, app_db.cron_url) as clock:
        clock.schedule(api.get(app, task).cron_job_id, "7 7 7 7 *")


def start(app_db: AppDatabase, app: Connection, scenario: str, task: UUID) -> int:
    """Write the one run that a worker is going to be killed over. Returns its id."""
    match scenario:
        case "firing" | "instant":
            make_due(app, task, minutes_ago=2)
            forget_place(app_db, app, task)
            return fire(app, task)[0]
        case "early":
            forget_place(app_db, app, task)
            return fire(app, task)[0]
        case "manual":
            return int(call(app, "run_task_now", task_id=task))
        case "edit":
            call(app, "update_task", task_id=task, cron="15 7 * * *")
        case "pause":
            call(app, "pause_task", task_id=task)
        case "deletion":
            call(app, "delete_task", task_id=task)
    return list_runs(app, job_id=api.get(app, task).cron_job_id, limit=1)[0].id


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_rule_7_killed_after_each_statement(
    app_db: AppDatabase, app: Connection, struck: dict[str, Struck], scenario: str
) -> None:
    *killed, _ = struck[scenario]
    assert len(killed) >= 10
    for nth, (task_id, run_id) in enumerate(struck[scenario]):
        run = get_run(app, run_id)
        # On a slow machine a later worker releases, claims and loses what an earlier one lost.
        assert (run.lost > 0) == (nth < len(killed))
        assert run.attempts == run.lost + 1
        check(app_db, app, scenario, settled(app, task_id), run)


def check(app_db: AppDatabase, app: Connection, scenario: str, task: Task, run: Run) -> None:
    effects, history = task_effects(app, task.id), api.list_task_runs(app, task.id)
    assert len(effects) == len(history) == (scenario in ("firing", "instant", "manual"))
    assert [(entry.scheduled_for, entry.trigger.value) for entry in history] == effects
    assert [entry.idempotency_key for entry in history] == core_api_keys(app, task.id)
    if run.error == "The job was paused after this run was fired.":
        # Killed after its very last statement: the clock job was gone, and nothing was left to do.
        assert scenario == "instant"
    else:
        assert run.status is (RunStatus.SKIPPED if scenario == "early" else RunStatus.DONE)
    if scenario in ("instant", "pause", "deletion"):
        assert task.next_run_at is None
        assert clock_schedule(app_db, app, task.id) is None
        assert not is_enabled(app, task.id)
        assert (task.status, task.deleted_at is None) == {
            "instant": (TaskStatus.DONE, True),
            "pause": (TaskStatus.PAUSED, True),
            "deletion": (TaskStatus.ACTIVE, False),
        }[scenario]
    else:
        assert task.status is TaskStatus.ACTIVE
        assert task.next_run_at is not None
        assert clock_schedule(app_db, app, task.id) == pg_cron_for(task.next_run_at)
        assert is_enabled(app, task.id)
    if scenario == "firing":
        assert task.last_scheduled_for == effects[0][0]
