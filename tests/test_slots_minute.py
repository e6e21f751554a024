"""One real minute of real pg_cron with slots: tasks and jobs fire end to end, once, also while all change their way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from sumaclock_dagster.clock.jobs import change_job, create_job, database_time, delete_job, pause_job, resume_job
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.clock.slots import SLOT_PREFIX
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.handlers import HandlerRun
from sumaclock_dagster.reconcile import heartbeat
from sumaclock_dagster.reconcile.drift import find_drift
from sumaclock_dagster.reconcile.sync import sync
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.handler import Doors, task_handlers
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.slots import in_slots
from tests.tasks import add_task, effect_kinds, make_task_effects, settled, task_effects
from tests.waiting import until
from tests.workers import running

pytestmark = pytest.mark.firing

EVERY_MINUTE = "* * * * *"
# Setting all up takes a while on a busy machine, and pg_cron reads changes within a second or so.
LATEST_SECOND = 30
MOVING = 40


@dataclass
class Minute:
    """What was set up before `at`, and what there was after it."""

    at: datetime
    jobs: dict[str, UUID] = field(default_factory=dict)
    tasks: dict[str, UUID] = field(default_factory=dict)
    runs: dict[UUID, list[Any]] = field(default_factory=dict)
    executed: list[UUID] = field(default_factory=list)
    effects: dict[str, list[tuple[datetime, str]]] = field(default_factory=dict)
    slots: list[str] = field(default_factory=list)
    moves: int = 0
    moved: dict[UUID, int] = field(default_factory=dict)
    caught_up: dict[UUID, int] = field(default_factory=dict)


def add(app: Connection, clock: Clock, schedule: str = EVERY_MINUTE, **values: Any) -> UUID:
    given = {"kind": "noted", "organization_id": "o", "user_id": "u", "payload": {}}
    return create_job(app, clock, schedule=schedule, **{**given, **values}).id


def set_up(app: Connection, clock: Clock, minute: Minute) -> None:
    far = minute.at + timedelta(days=40)
    elsewhere = f"{far.minute} {far.hour} {far.day} {far.month} *"
    jobs = {
        "fires": add(app, clock),
        "shares": add(app, clock),
        "at its minute": add(app, clock, f"{minute.at.minute} * * * *"),
        "changed to fire": add(app, clock, elsewhere),
        "changed not to fire": add(app, clock),
        "paused": add(app, clock),
        "deleted": add(app, clock),
        "resumed": add(app, clock, enabled=False),
    }
    change_job(app, clock, jobs["changed to fire"], schedule=EVERY_MINUTE)
    change_job(app, clock, jobs["changed not to fire"], schedule=elsewhere)
    pause_job(app, clock, jobs["paused"])
    delete_job(app, clock, jobs["deleted"])
    resume_job(app, clock, jobs["resumed"])
    minute.jobs = jobs
    minute.tasks = {
        "one": add_task(app, instant=minute.at),
        "two": add_task(app, instant=minute.at),
        "edited": add_task(app, instant=minute.at),
    }
    for task in minute.tasks.values():
        settled(app, task)
    app.execute("select sumaclock.update_task(%s, instant => %s)", [minute.tasks["edited"], far.replace(second=0)])
    settled(app, minute.tasks["edited"])


@pytest.fixture(scope="module")
def minute(cluster: TestCluster) -> Iterator[Minute]:
    names = [f"t_{uuid4().hex[:10]}" for _ in range(2)]
    try:
        with ExitStack() as stack:
            fixed, moving = (make_app_database(cluster, name) for name in names)
            yield watch(stack, fixed, moving)
    finally:
        for name in names:
            drop_app_database(cluster, name)


def watch(stack: ExitStack, fixed: AppDatabase, moving: AppDatabase) -> Minute:
    """One minute in two databases: in one all is placed before it, in the other all moves to and fro around it."""
    app = stack.enter_context(connect(fixed.app_url, "test minute"))
    clock = stack.enter_context(open_clock(app, fixed.cron_url, "slots"))
    make_task_effects(stack.enter_context(connect(fixed.superuser_url, "test superuser")))
    executed: list[UUID] = []
    settings = fixed.settings.model_copy(update={"clock": "slots"})
    doors = Doors(settings)
    stack.callback(doors.close)
    handlers = task_handlers(settings, effect_kinds(), doors)

    @handlers.register("noted")
    def noted(run: HandlerRun) -> None:
        executed.append(run.job_id)

    stack.enter_context(running(fixed, handlers, clock="slots"))
    until(lambda: 2 <= database_time(app).second <= LATEST_SECOND, 60, "the beginning of a minute", 0.2)
    found = Minute(database_time(app).replace(second=0, microsecond=0) + timedelta(minutes=1), executed=executed)
    set_up(app, clock, found)
    found.slots = sorted(job.schedule for job in clock.listed(SLOT_PREFIX))
    move_around(stack, moving, found)

    expected = [found.jobs[name] for name in ("fires", "shares", "at its minute", "changed to fire", "resumed")]
    until(lambda: set(executed) >= set(expected), 40, "the jobs to be executed")
    for name in ("one", "two"):
        until(lambda name=name: task_effects(app, found.tasks[name]), 20, f"task {name} to be executed")  # type: ignore[misc]
        settled(app, found.tasks[name])
    found.effects = {name: task_effects(app, task) for name, task in found.tasks.items()}
    rows = "select job_id, array_agg(scheduled_at) from sumaclock.cron_runs where trigger = 'clock' group by 1"
    found.runs = dict(app.execute(rows).fetchall())
    assert find_drift(app, clock) == []
    assert api.get(app, found.tasks["one"]).status.value == "done"
    return found


def move_around(stack: ExitStack, moving: AppDatabase, found: Minute) -> None:
    """Syncs of both directions in turn, from before the minute until after it."""
    app = stack.enter_context(connect(moving.app_url, "test moving"))
    slots = stack.enter_context(open_clock(app, moving.cron_url, "slots"))
    jobs = stack.enter_context(open_clock(app, moving.cron_url, "jobs"))
    for _ in range(MOVING):
        add(app, jobs, f"{found.at.minute} * * * *")
    assert database_time(app) < found.at - timedelta(seconds=4), "the set-up took too long for this minute"
    until(lambda: database_time(app) >= found.at - timedelta(seconds=2), 60, "the end of the minute", 0.05)
    while database_time(app) < found.at + timedelta(seconds=3):
        sync(app, slots if found.moves % 2 == 0 else jobs)
        found.moves += 1
    sync(app, slots)
    assert find_drift(app, slots) == []
    assert len(in_slots(app)) == MOVING
    unfinished = "select 1 from cron.job_run_details where database = %s and status not in ('succeeded', 'failed')"
    cron = stack.enter_context(connect(moving.cron_url, "test cron"))
    until(lambda: not cron.execute(unfinished, [moving.name]).fetchone(), 20, "pg_cron to finish")
    count = "select job_id, count(*) from sumaclock.cron_runs where scheduled_at = %s group by 1"
    found.moved = dict(app.execute(count, [found.at]).fetchall())
    with pytest.MonkeyPatch.context() as patch:
        # As the heartbeat does three minutes later.
        patch.setattr(heartbeat, "LATE_SECONDS", 0)
        app.execute("update sumaclock.cron_jobs set updated_at = updated_at - interval '1 hour'")
        app.execute("update sumaclock.missed_firings_look set looked_until = %s", [found.at - timedelta(minutes=1)])
        heartbeat.beat(app, 30)
    found.caught_up = dict(app.execute(count, [found.at]).fetchall())


@pytest.mark.parametrize("which", ["fires", "shares", "at its minute", "changed to fire", "resumed"])
def test_a_job_fires_by_its_slot_on_its_minute(minute: Minute, which: str) -> None:
    assert minute.runs[minute.jobs[which]] == [minute.at]
    assert minute.executed.count(minute.jobs[which]) == 1


@pytest.mark.parametrize("which", ["changed not to fire", "paused", "deleted"])
def test_what_does_not_fire_any_more_fires_nothing(minute: Minute, which: str) -> None:
    assert minute.jobs[which] not in minute.runs
    assert minute.jobs[which] not in minute.executed


@pytest.mark.parametrize("which", ["one", "two"])
def test_a_task_fires_by_its_slot_once(minute: Minute, which: str) -> None:
    assert minute.effects[which] == [(minute.at, "clock")]


def test_an_edited_task_does_not_fire_where_it_was(minute: Minute) -> None:
    assert minute.effects["edited"] == []


def test_tasks_and_jobs_of_one_minute_share_slots(minute: Minute) -> None:
    at = minute.at
    assert minute.slots.count(EVERY_MINUTE) == 1
    assert minute.slots.count(f"{at.minute} {at.hour} {at.day} {at.month} *") == 1
    assert len(minute.slots) == 4


def test_a_slot_in_seconds_fires_where_pg_cron_knows_them(app: Connection, app_db: AppDatabase) -> None:
    with open_clock(app, app_db.cron_url, "slots") as clock:
        if not clock.features().seconds:
            pytest.skip("pg_cron before 1.5 knows no schedules in seconds")
        jobs = {add(app, clock, "2 seconds", overlap="allow") for _ in range(3)}
        rows = "select job_id, count(*) from sumaclock.cron_runs where trigger = 'clock' group by 1"
        fired = until(lambda: len(found := dict(app.execute(rows).fetchall())) == 3 and found, 20, "the jobs to fire")
        assert set(fired) == jobs
        assert len(clock.listed(SLOT_PREFIX)) == 1


def test_no_minute_fires_a_job_twice_while_it_changes_its_way(minute: Minute) -> None:
    assert minute.moves >= 3, "the syncs were too slow to say anything"
    assert set(minute.moved.values()) <= {1}


def test_what_a_change_of_way_missed_the_heartbeat_fires(minute: Minute) -> None:
    assert len(minute.caught_up) == MOVING
    assert set(minute.caught_up.values()) == {1}
