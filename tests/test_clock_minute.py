"""One real minute of real pg_cron: what fires, what does not, and that schedules mean what `next_utc` says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from sumaclock_dagster.clock.jobs import (
    change_job,
    create_job,
    database_time,
    delete_job,
    list_jobs,
    pause_job,
    resume_job,
)
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.model import Job, RunStatus, RunTrigger, SumaclockError
from sumaclock_dagster.queue.runs import list_runs
from sumaclock_dagster.raw_schedule import FIELDS, check, next_utc
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.waiting import until

EVERY_MINUTE = "* * * * *"
pytestmark = pytest.mark.firing
SAMPLE = 160
# pg_cron reads changes of cron.job within a second or so; setting all up takes a few.
LATEST_SECOND = 40
FAR = timedelta(days=40)


@dataclass
class Minute:
    """What was set up before `at`, and what there was after it. Jobs by a word for what they are to show."""

    at: datetime
    jobs: dict[str, Job]
    sample: dict[UUID, str]
    runs: dict[UUID, list[Any]]
    details: dict[str, tuple[str, str]]
    neighbours: tuple[list[Any], list[Any]]


def add(app: Connection, clock: Clock, schedule: str, **changes: Any) -> Job:
    values = {"kind": "k", "organization_id": "o", "user_id": "u", "payload": {}}
    return create_job(app, clock, schedule=schedule, **{**values, **changes})


def far(at: datetime) -> str:
    """A schedule that does not fire today."""
    day = at + FAR
    return f"{day.minute} {day.hour} {day.day} {day.month} *"


def sample_schedules(at: datetime, features_clock: Clock) -> list[str]:
    """Schedules of all forms, each field of most of them holding the value of `at`."""
    rng = random.Random(4711)
    moment = (at.minute, at.hour, at.day, at.month, at.isoweekday() % 7)
    found: list[str] = []
    while len(found) < SAMPLE:
        schedule = " ".join(
            ",".join(_term(rng, index, value) for _ in range(rng.choice([1, 1, 2])))
            for index, value in enumerate(moment)
        )
        try:
            check(schedule, features_clock.features())
        except SumaclockError:
            continue
        found.append(schedule)
    return found


def _term(rng: random.Random, index: int, value: int) -> str:
    field = FIELDS[index]
    if rng.random() < 0.2:
        value = rng.randint(field.low, field.high)
    low, high = rng.randint(field.low, value), rng.randint(value, field.high)
    steps = [step for step in range(1, field.high + 1) if (value - field.low) % step == 0]
    forms = ["*", f"*/{rng.choice(steps)}", str(value), f"{value:02d}", f"{low}-{high}"]
    if low < high:
        forms.append(f"{low}-{high}/{rng.randint(1, field.high)}")
    if field.names:
        forms.append(rng.choice([str.upper, str.lower])(field.names[(value - field.low) % len(field.names)]))
    return rng.choice(forms)


@pytest.fixture(scope="module")
def app_database(cluster: TestCluster) -> Iterator[AppDatabase]:
    name = f"t_{uuid4().hex[:10]}"
    try:
        yield make_app_database(cluster, name)
    finally:
        drop_app_database(cluster, name)


@pytest.fixture(scope="module")
def minute(cluster: TestCluster, app_database: AppDatabase) -> Iterator[Minute]:
    with (
        connect(app_database.app_url, "test minute") as app,
        open_clock(app, app_database.cron_url) as clock,
        connect(cluster.file.superuser_url, "test cron superuser") as cron,
    ):
        # Not in its very first second: pg_cron may still be at this minute's firings and take in what is made.
        until(lambda: 2 <= database_time(app).second <= LATEST_SECOND, 40, "the beginning of a minute", 0.2)
        now = database_time(app)
        at = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
        neighbours = add_neighbours(cron, app_database.name)
        try:
            jobs = set_up(app, clock, at)
            sample = {add(app, clock, text, kind="sample").id: text for text in sample_schedules(at, clock)}
            assert database_time(app) < at - timedelta(seconds=2), "the set-up took too long for this minute"
            expected = sum(next_utc(text, at - timedelta(seconds=1)) == at for text in sample.values())
            until(lambda: database_time(app) >= at, 70, "the minute", 0.2)
            of_kind = "select id from sumaclock.cron_jobs where kind = %s"
            count = f"select count(*) from sumaclock.cron_runs where job_id in ({of_kind})"
            until(lambda: app.execute(count, ["sample"]).fetchone() == (expected,), 30, "the sample's firings")
            until(lambda: app.execute(count, ["k"]).fetchone() == (3,), 10, "the firings of the others")
            unfinished = (
                "select 1 from cron.job_run_details where database = %s and status not in ('succeeded', 'failed')"
            )
            until(lambda: not cron.execute(unfinished, [app_database.name]).fetchone(), 20, "pg_cron to finish")
            yield look(app, cron, app_database.name, at, jobs, sample, neighbours)
        finally:
            cron.execute("delete from cron.job where jobname like %s", [f"%{app_database.name}%"])


def set_up(app: Connection, clock: Clock, at: datetime) -> dict[str, Job]:
    jobs = {
        "fires": add(app, clock, EVERY_MINUTE),
        "changed to fire": add(app, clock, far(at)),
        "changed not to fire": add(app, clock, EVERY_MINUTE),
        "paused": add(app, clock, EVERY_MINUTE),
        "resumed": add(app, clock, EVERY_MINUTE, enabled=False),
        "created paused": add(app, clock, EVERY_MINUTE, enabled=False),
        "row gone": add(app, clock, EVERY_MINUTE),
        "deleted": add(app, clock, EVERY_MINUTE),
    }
    change_job(app, clock, jobs["changed to fire"].id, schedule=f"{at.minute} * * * *")
    change_job(app, clock, jobs["changed not to fire"].id, schedule=far(at))
    pause_job(app, clock, jobs["paused"].id)
    resume_job(app, clock, jobs["resumed"].id)
    with app.transaction():
        # In a caller's transaction the clock job stays, as after a crash in between.
        delete_job(app, clock, jobs["row gone"].id)
    delete_job(app, clock, jobs["deleted"].id)
    return jobs


def add_neighbours(cron: Connection, name: str) -> list[Any]:
    """Clock jobs of others that fire in the same minute, under names much like ours."""
    for jobname in (f"{name}:cron:x", f"{name}%:cron:{uuid4()}", f"{name}':cron:{uuid4()}"):
        cron.execute("select cron.schedule_in_database(%s, %s, 'select 1', 'postgres')", [jobname, EVERY_MINUTE])
    return neighbours_of(cron, name)


def neighbours_of(cron: Connection, name: str) -> list[Any]:
    # Ours in that database are the system clock jobs.
    return cron.execute(
        "select * from cron.job where database = 'postgres' and jobname like %s and not starts_with(jobname::text, %s)"
        " order by jobid",
        [f"%{name}%", f"{name}:system:"],
    ).fetchall()


def look(
    app: Connection,
    cron: Connection,
    name: str,
    at: datetime,
    jobs: dict[str, Job],
    sample: dict[UUID, str],
    before: list[Any],
) -> Minute:
    runs: dict[UUID, list[Any]] = {}
    for run in list_runs(app, limit=10_000):
        runs.setdefault(run.job_id, []).append(run)
    details = cron.execute(
        "select command, status, return_message from cron.job_run_details where database = %s", [name]
    ).fetchall()
    by_command = {command: (status, message) for command, status, message in details}
    return Minute(at, jobs, sample, runs, by_command, (before, neighbours_of(cron, name)))


def test_a_job_fires_at_its_minute(minute: Minute) -> None:
    [run] = minute.runs[minute.jobs["fires"].id]
    assert run.scheduled_at == minute.at
    assert minute.at <= run.due_at < minute.at + timedelta(seconds=30)
    assert (run.status, run.trigger, run.attempts) == (RunStatus.PENDING, RunTrigger.CLOCK, 0)
    assert (run.kind, run.organization_id, run.user_id) == ("k", "o", "u")


@pytest.mark.parametrize("which", ["changed to fire", "resumed"])
def test_a_change_takes_effect(minute: Minute, which: str) -> None:
    assert [run.scheduled_at for run in minute.runs[minute.jobs[which].id]] == [minute.at]


@pytest.mark.parametrize("which", ["changed not to fire", "paused", "created paused", "deleted"])
def test_what_does_not_fire_any_more_fires_nothing(minute: Minute, which: str) -> None:
    job_id = minute.jobs[which].id
    assert job_id not in minute.runs
    assert not [command for command in minute.details if str(job_id) in command]


def test_a_firing_whose_row_is_gone_leaves_no_run(minute: Minute) -> None:
    job_id = minute.jobs["row gone"].id
    [(status, message)] = [found for command, found in minute.details.items() if str(job_id) in command]
    assert status == "failed"
    assert "foreign key" in message
    assert job_id not in minute.runs


def test_pg_cron_means_what_next_utc_says(minute: Minute) -> None:
    fired = {job_id for job_id in minute.sample if job_id in minute.runs}
    expected = {
        job_id
        for job_id, text in minute.sample.items()
        if next_utc(text, minute.at - timedelta(seconds=1)) == minute.at
    }
    assert {minute.sample[job_id] for job_id in fired ^ expected} == set()
    assert len(minute.sample) * 0.2 < len(fired) < len(minute.sample) * 0.9, "the sample must hold both"
    assert all(run.scheduled_at == minute.at for job_id in fired for run in minute.runs[job_id])


def test_rule_10_neighbours_that_fire_in_the_same_minute_stay_as_they_are(minute: Minute) -> None:
    before, after = minute.neighbours
    assert len(before) == 3
    assert after == before


def test_every_clock_job_is_of_an_enabled_job_or_of_the_row_that_is_gone(
    minute: Minute, app_database: AppDatabase
) -> None:
    with connect(app_database.app_url, "test") as app, open_clock(app, app_database.cron_url) as clock:
        placed = {found.job_id for found in clock.listed()}
        assert placed == {job.id for job in list_jobs(app, enabled=True, limit=1000)} | {minute.jobs["row gone"].id}
