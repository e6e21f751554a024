"""A worker killed between each two statements of what it does for tasks that it settles together: every point.

Each time its runs are released, and what they were for has happened exactly once, with the right clock jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from sumaclock_dagster.calendar import pg_cron_for
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.model import RunStatus
from sumaclock_dagster.queue.runs import get_run
from sumaclock_dagster.tasks import api
from tests import task_process
from tests.conftest import AppDatabase, TestCluster
from tests.tasks import (
    EAGER,
    add_task,
    clock_schedule,
    core_api_keys,
    fire,
    is_enabled,
    make_due,
    task_database,
    task_effects,
    task_worker,
)
from tests.workers import await_ended

# Two tasks at once, and more exchanges than anything that is done for them takes.
TOGETHER = 2
MOST = 50
PATIENT = {"dead_session_seconds": 20, "max_lost": 100}
Struck = list[list[tuple[UUID, int]]]


@pytest.fixture(scope="module")
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    with task_database(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def struck(app_db: AppDatabase) -> Iterator[Struck]:
    """Tasks and their runs by the number of exchanges after which the worker was killed over them; the last was not."""
    with connect(app_db.app_url, "test crash") as app:
        with app.transaction():
            spare = [[add_task(app, cron="30 8 * * 1") for _ in range(TOGETHER)] for _ in range(MOST)]
        with task_worker(app_db):
            rows = app.execute("select id from sumaclock.cron_runs").fetchall()
            await_ended(app, [row[0] for row in rows], 60)
        process = task_process.spawn("crash", app_db, **EAGER, **PATIENT)
        found: Struck = []
        try:
            for after, tasks in enumerate(spare):
                with app.transaction():
                    for task in tasks:
                        make_due(app, task, minutes_ago=2)
                    found.append([(task, fire(app, task)[0]) for task in tasks])
                if not task_process.crashes(process, after):
                    break
        finally:
            process.kill()
            process.wait()
        with task_worker(app_db, max_lost=PATIENT["max_lost"]):
            await_ended(app, [run for pair in found for _, run in pair], 60)
        yield found


def test_rule_7_killed_after_each_statement_over_several_tasks(
    app_db: AppDatabase, app: Connection, struck: Struck
) -> None:
    assert 20 <= len(struck) < MOST
    for task_id, run_id in (one for pair in struck for one in pair):
        run, task = get_run(app, run_id), api.get(app, task_id)
        assert run.status is RunStatus.DONE
        assert [effect[1] for effect in task_effects(app, task_id)] == ["clock"]
        (recorded,) = api.list_task_runs(app, task_id)
        assert (recorded.status, recorded.cron_run_id) == ("done", run_id)
        assert core_api_keys(app, task_id) == [recorded.idempotency_key]
        assert task.last_scheduled_for == recorded.scheduled_for
        assert task.next_run_at is not None
        assert task.next_run_at > recorded.started_at
        assert clock_schedule(app_db, app, task_id) == pg_cron_for(task.next_run_at)
        assert is_enabled(app, task_id)


def test_it_was_killed_before_and_after_their_one_commit(app: Connection, struck: Struck) -> None:
    """Both of a pair were executed at the same attempt: there is no point at which one of them alone was."""
    attempts = [
        [
            app.execute("select attempt from public.task_effects where task_id = %s", [task]).fetchone()
            for task, _ in pair
        ]
        for pair in struck
    ]
    assert all(first == second for first, second in attempts)
    assert {first[0] > 1 for first, _ in attempts if first} == {True, False}
