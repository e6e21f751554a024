"""Tasks fired by real pg_cron, and by everything at once.

The tasks that pg_cron is to fire are made first; while their minute comes, the other tests of this module run.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import SecretStr

from sumaclock_dagster.calendar import next_occurrence, parse_schedule, pg_cron_for
from sumaclock_dagster.db import Connection, connect, with_database
from sumaclock_dagster.model import RunStatus, RunTrigger
from sumaclock_dagster.queue.runs import get_run, list_runs
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import TaskStatus, TaskTrigger
from tests import task_process
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.tasks import (
    EAGER,
    WEEKLY,
    add_task,
    clock_schedule,
    core_api_keys,
    fire,
    is_enabled,
    make_due,
    make_task_effects,
    settled,
    task_effects,
    task_worker,
)
from tests.waiting import until
from tests.workers import FAST, await_ended, await_status

pytestmark = pytest.mark.firing
MADRID = ZoneInfo("Europe/Madrid")
# Beyond this, the clock job is made early enough to fire.
AHEAD_SECONDS = 15
EIGHT = 8


@dataclass(frozen=True)
class Scene:
    """Tasks for `minute` (UTC, the next one): a daily one in Madrid's local time, an instant one; and a weekly one."""

    app_db: AppDatabase
    minute: datetime
    daily: UUID
    instant: UUID
    weekly: UUID


@pytest.fixture(scope="module", autouse=True)
def scene(cluster: TestCluster) -> Iterator[Scene]:
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        app_db = make_app_database(cluster, name)
        with connect(app_db.superuser_url, "test superuser") as superuser:
            make_task_effects(superuser)
        with connect(app_db.app_url, "test scene") as app, task_worker(app_db):
            row = app.execute(
                "select date_trunc('minute', now() + %s * interval '1 second') + interval '1 minute'", [AHEAD_SECONDS]
            ).fetchone()
            assert row is not None
            local = row[0].astimezone(MADRID)
            daily = add_task(app, cron=f"{local.minute} {local.hour} * * *")
            yield Scene(app_db, row[0], daily, add_task(app, instant=row[0]), add_task(app))
    finally:
        drop_app_database(cluster, name)


@pytest.fixture(scope="module")
def crowd(cluster: TestCluster) -> Iterator[AppDatabase]:
    """A database with eight workers in processes of their own, which take few runs at a time."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    processes: list[subprocess.Popen[str]] = []
    try:
        app_db = make_app_database(cluster, name)
        with connect(app_db.superuser_url, "test superuser") as superuser:
            make_task_effects(superuser)
        few = {"claim_batch": 2, "claim_batch_max": 10, "handler_threads": 4}
        processes += [task_process.spawn("serve", app_db, **{**FAST, **EAGER, **few}) for _ in range(EIGHT)]
        for process in processes:
            task_process.serving(process)
        yield app_db
    finally:
        for process in processes:
            process.kill()
            process.wait()
        drop_app_database(cluster, name)


def test_tasks_are_placed_before_their_minute(scene: Scene) -> None:
    with connect(scene.app_db.app_url, "test scene") as app:
        for task_id, occurrence in (
            (scene.daily, scene.minute),
            (scene.instant, scene.minute),
            (scene.weekly, next_occurrence(parse_schedule(WEEKLY), scene.minute - timedelta(minutes=1))),
        ):
            task = settled(app, task_id)
            assert occurrence is not None
            assert (task.status, task.next_run_at) == (TaskStatus.ACTIVE, occurrence)
            assert clock_schedule(scene.app_db, app, task_id) == pg_cron_for(occurrence)
        weekly = api.get(app, scene.weekly).next_run_at
        assert weekly is not None
        assert f"{weekly.astimezone(MADRID):%a %H:%M}" == "Mon 09:00"


@pytest.mark.parametrize("times", [2, 10])
def test_rule_7_the_same_firing_many_times_by_eight_workers_runs_once(crowd: AppDatabase, times: int) -> None:
    with connect(crowd.app_url, "test crowd") as app:
        tasks = [add_task(app, cron=WEEKLY) for _ in range(15)]
        tasks += [add_task(app, instant=in_a_week(app)) for _ in range(15)]
        for task in tasks:
            assert settled(app, task).next_run_at is not None
        with app.transaction():
            (occurrence,) = {make_due(app, task, minutes_ago=1) for task in tasks}
            ids = [run for task in tasks for by in ("clock", "catch_up") for run in fire(app, task, by, times)]
        await_ended(app, ids, 30)
        for task in tasks:
            ((scheduled_for, trigger),) = task_effects(app, task)
            (row,) = api.list_task_runs(app, task)
            assert (scheduled_for, row.scheduled_for, row.status) == (occurrence, occurrence, "done")
            assert trigger == row.trigger.value
            assert core_api_keys(app, task) == [row.idempotency_key]
            after = settled(app, task)
            if after.instant:
                assert (after.status, clock_schedule(crowd, app, task)) == (TaskStatus.DONE, None)
            else:
                assert after.next_run_at is not None
                assert clock_schedule(crowd, app, task) == pg_cron_for(after.next_run_at)
        done = app.execute(
            "select count(distinct claimed_by), count(*) filter (where status = 'done'),"
            " count(*) filter (where status = 'skipped') from sumaclock.cron_runs where id = any(%s)",
            [ids],
        ).fetchone()
        assert done is not None
        assert done[0] >= 4
        assert done[1:] == (len(tasks), len(ids) - len(tasks))


def test_a_thousand_tasks_due_in_the_same_minute_all_run_and_none_twice(crowd: AppDatabase) -> None:
    with connect(crowd.app_url, "test crowd") as app:
        with app.transaction():
            tasks = [add_task(app, cron=WEEKLY) for _ in range(1000)]
        until(lambda: unplaced(app) == 0, 60, "all to be placed")
        with app.transaction():
            app.execute(
                "update sumaclock.ai_tasks set next_run_at = date_trunc('minute', now()) where id = any(%s)", [tasks]
            )
            rows = app.execute(
                "insert into sumaclock.cron_runs (job_id) select cron_job_id from sumaclock.ai_tasks where id = any(%s)"
                " returning id",
                [tasks],
            ).fetchall()
            # The catch-up sees some of them late, too.
            late = [run for task in tasks[::10] for run in fire(app, task, "catch_up")]
        await_ended(app, [row[0] for row in rows] + late, 60)
        counts = app.execute(
            "select count(*), count(distinct task_id), count(distinct key) from public.task_effects"
            " where task_id = any(%s)",
            [tasks],
        ).fetchone()
        assert counts == (1000, 1000, 1000)
        jobs = app.execute(
            "select count(*) from sumaclock.ai_task_runs r join sumaclock.core_api_jobs using (idempotency_key)"
            " where r.task_id = any(%s)",
            [tasks],
        ).fetchone()
        assert jobs == (1000,)
        assert unplaced(app) == 0
        wrong = app.execute(
            "select count(*) from sumaclock.ai_tasks t join sumaclock.cron_jobs j on j.id = t.cron_job_id"
            " where t.id = any(%s) and (t.next_run_at <= now() or not j.enabled)",
            [tasks],
        ).fetchone()
        assert wrong == (0,)
    with connect(with_database(crowd.superuser_url, "postgres"), "test look") as cron:
        clock_jobs = cron.execute("select count(*) from cron.job where database = %s", [crowd.name]).fetchone()
    assert clock_jobs is not None
    assert clock_jobs[0] >= 1000


def unplaced(app: Connection) -> int:
    row = app.execute(
        "select count(*) from sumaclock.ai_tasks where status = 'active' and next_run_at is null"
    ).fetchone()
    assert row is not None
    return int(row[0])


def in_a_week(app: Connection) -> datetime:
    row = app.execute("select date_trunc('minute', now()) + interval '7 days'").fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


@pytest.fixture
def effects_db(app_db: AppDatabase, superuser: Connection) -> AppDatabase:
    make_task_effects(superuser)
    return app_db


def test_a_task_fires_while_pg_cron_is_away_and_its_clock_job_follows_later(
    effects_db: AppDatabase, app: Connection
) -> None:
    away = SecretStr(with_database(effects_db.cron_url, "no_such_database"))
    with task_worker(effects_db):
        task = settled(app, add_task(app))
    occurrence = make_due(app, task.id)
    (run_id,) = fire(app, task.id)
    with task_worker(effects_db, cron_database_url=away):
        until(lambda: get_run(app, run_id).attempts > 2, 10, "several attempts")
        until(lambda: get_run(app, run_id).status is RunStatus.PENDING, 10, "its next attempt")
        assert task_effects(app, task.id) == [(occurrence, "clock")]
        assert "no_such_database" in (get_run(app, run_id).error or "")
    with task_worker(effects_db):
        await_ended(app, [run_id])
    assert get_run(app, run_id).status is RunStatus.DONE
    after = api.get(app, task.id)
    assert after.next_run_at is not None
    assert clock_schedule(effects_db, app, task.id) == pg_cron_for(after.next_run_at)
    assert task_effects(app, task.id) == [(occurrence, "clock")]


def test_rule_13_a_task_whose_row_somebody_holds_makes_nobody_else_wait(
    effects_db: AppDatabase, app: Connection
) -> None:
    with task_worker(effects_db, task_backoff_seconds=30, task_backoff_max_seconds=30):
        held, other = settled(app, add_task(app)), settled(app, add_task(app))
        make_due(app, held.id)
        make_due(app, other.id)
        with connect(effects_db.app_url, "test holder") as holder, holder.transaction():
            holder.execute("select from sumaclock.ai_tasks where id = %s for update", [held.id])
            (waiting,) = fire(app, held.id)
            await_status(app, waiting, "running")
            await_ended(app, fire(app, other.id))
            await_status(app, waiting, "pending")
        assert get_run(app, waiting).error == "Another session has held the task's row for 10 s."
        app.execute("update sumaclock.cron_runs set due_at = now() where id = %s", [waiting])
        app.execute("notify cron_runs")
        await_ended(app, [waiting])
    assert (len(task_effects(app, held.id)), len(task_effects(app, other.id))) == (1, 1)


def test_pg_cron_fires_the_tasks_of_a_minute(scene: Scene) -> None:
    """Last in this module, so that the minute has come by now, or nearly."""
    with connect(scene.app_db.app_url, "test scene") as app:
        for task_id in (scene.daily, scene.instant):
            until(lambda: api.list_task_runs(app, task_id), 90, "pg_cron to fire", 0.1)  # noqa: B023
            task = settled(app, task_id)
            (row,) = api.list_task_runs(app, task_id)
            run = get_run(app, row.cron_run_id)
            assert (run.trigger, run.status, run.scheduled_at) == (RunTrigger.CLOCK, RunStatus.DONE, scene.minute)
            assert (row.trigger, row.status, row.scheduled_for) == (TaskTrigger.CLOCK, "done", scene.minute)
            assert row.started_at >= scene.minute
            assert row.idempotency_key == f"ai_task_run:{task_id}:{scene.minute:%Y-%m-%dT%H:%M}Z"
            assert task_effects(app, task_id) == [(scene.minute, "clock")]
            assert core_api_keys(app, task_id) == [row.idempotency_key]
            assert task.last_scheduled_for == scene.minute
        again = next_occurrence(parse_schedule(api.get(app, scene.daily).cron), scene.minute)
        assert again is not None
        assert api.get(app, scene.daily).next_run_at == again
        assert clock_schedule(scene.app_db, app, scene.daily) == pg_cron_for(again)
        assert api.get(app, scene.instant).status is TaskStatus.DONE
        until(lambda: not is_enabled(app, scene.instant), 10, "its job to be disabled")
        assert clock_schedule(scene.app_db, app, scene.instant) is None
        weekly = api.get(app, scene.weekly)
        if weekly.next_run_at != scene.minute:
            assert [run.trigger for run in list_runs(app, job_id=weekly.cron_job_id)] == [RunTrigger.REQUEST]
