"""Heartbeat: what the clock missed is fired now, once. Late is late, not lost (rule 9).

A late task gets one run with the trigger catch_up; settling it executes the occurrence under the very key that its
firing would have had, so whichever comes first executes it and the other finds that it did. A raw job gets one run for
the last firing that it missed since the last look, unless it has fired since. Two heartbeats at once: one works, the
other finds the lock taken and leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from psycopg.rows import class_row

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.raw_schedule import previous_utc

# A firing may take a minute and a half when ten thousand are due at once.
LATE_SECONDS = 180
# Jobs whose firings are held at once, in memory that the server has little of.
HELD = 1000


@dataclass(frozen=True, slots=True)
class LateTask:
    """A task whose time passed without a firing. run_id: of the run that fires it now."""

    task_id: UUID
    title: str
    job_id: UUID
    scheduled_at: datetime
    run_id: int
    late_seconds: float
    told: int


@dataclass(frozen=True, slots=True)
class MissedFiring:
    """The last firing that a raw job missed. status: pending, or skipped where the job's policy is 'none'."""

    job_id: UUID
    kind: str
    scheduled_at: datetime
    run_id: int
    status: str
    late_seconds: float
    told: int


@dataclass(frozen=True, slots=True)
class Beat:
    """What one heartbeat fired. looked: False where another heartbeat was at work."""

    looked: bool = True
    tasks: list[LateTask] = field(default_factory=list)
    jobs: list[MissedFiring] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Late:
    """How many tasks are late, and how many jobs missed a firing."""

    tasks: int
    jobs: int


@dataclass(frozen=True, slots=True)
class Due:
    """The last minute in the window at which each schedule should have fired."""

    until: datetime
    schedules: list[str]
    moments: list[datetime]


def look_for_late(app: Connection, retention_days: int) -> Late:
    """What a heartbeat would fire. Fires nothing; where no job missed anything, notes up to when that is known."""
    with app.transaction():
        tasks = _count(app, "count_late_tasks", late=LATE_SECONDS)
        due = _due(app, retention_days)
        jobs = _count(app, "count_missed_firings", schedules=due.schedules, moments=due.moments)
        if jobs == 0:
            app.execute(query("note_missed_look"), {"until": due.until})
    return Late(tasks, jobs)


def beat(app: Connection, retention_days: int) -> Beat:
    """Fire every late task and what raw jobs missed: one run each. Wakes the workers."""
    tasks: list[LateTask] = []
    jobs: list[MissedFiring] = []
    after = UUID(int=0)
    while True:
        with app.transaction():
            row = app.execute(query("lock_heartbeat")).fetchone()
            if row is None or not row[0]:
                return Beat(bool(tasks or jobs), tasks, jobs)
            values = {"late": LATE_SECONDS}
            tasks += app.cursor(row_factory=class_row(LateTask)).execute(query("fire_late_tasks"), values).fetchall()
            due = _due(app, retention_days)
            missed = {"schedules": due.schedules, "moments": due.moments}
            held = app.execute(query("hold_missed_firings"), {**missed, "after": after, "at_once": HELD}).fetchall()
            # A statement of its own: its snapshot must be younger than what is held.
            writing = {**missed, "held": [job_id for job_id, is_held in held if is_held]}
            jobs += app.cursor(row_factory=class_row(MissedFiring)).execute(query("write_missed_firings"), writing)
            if len(held) < HELD:
                app.execute(query("note_missed_look"), {"until": due.until})
                return Beat(True, tasks, jobs)
        after = held[-1][0]


def _due(app: Connection, retention_days: int) -> Due:
    window = app.execute(query("read_missed_window"), {"late": LATE_SECONDS, "retention": retention_days}).fetchone()
    assert window is not None  # noqa: S101  (the table has its one row from the migration on)
    after, until = window
    due = Due(until, [], [])
    for (schedule,) in app.execute(query("list_raw_schedules")).fetchall():
        moment = _last_within(schedule, after, until)
        if moment is not None:
            due.schedules.append(schedule)
            due.moments.append(moment)
    return due


def _last_within(schedule: str, after: datetime, until: datetime) -> datetime | None:
    """The last minute in (after, until] at which it fires; None also for a schedule that no grammar knows."""
    try:
        found = previous_utc(schedule, until + timedelta(minutes=1))
    except SumaclockError:
        return None
    return found if found is not None and found > after else None


def _count(app: Connection, name: str, **values: object) -> int:
    row = app.execute(query(name), values).fetchone()
    assert row is not None  # noqa: S101  (a count has one row)
    return int(row[0])
