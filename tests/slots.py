"""What the tests of slots share."""

from __future__ import annotations

from uuid import UUID

from sumaclock_dagster.clock.command import slot_firing_command
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.clock.slots import SLOT_PREFIX, slot_id
from sumaclock_dagster.db import Connection


def slot_name(clock: Clock, schedule: str) -> str:
    return f"{clock.database_name}:slot:{slot_id(schedule)}"


def slot_schedules(clock: Clock) -> list[str]:
    """The schedules of the slots in pg_cron, in order."""
    return sorted(job.schedule for job in clock.listed(SLOT_PREFIX))


def noted_schedules(app: Connection) -> list[str]:
    return [row[0] for row in app.execute("select schedule from sumaclock.clock_slots order by 1").fetchall()]


def in_slots(app: Connection) -> set[UUID]:
    """The jobs that fire by a slot."""
    return {row[0] for row in app.execute("select id from sumaclock.cron_jobs where slot_since is not null").fetchall()}


def join_earlier(app: Connection) -> None:
    """As if all jobs had joined their slots some minutes ago."""
    app.execute("update sumaclock.cron_jobs set slot_since = slot_since - interval '5 minutes'")


def fire_slot(app: Connection, schedule: str) -> None:
    """What pg_cron does at the slot's time."""
    app.execute(slot_firing_command(slot_id(schedule)).encode())


def fired(app: Connection) -> dict[UUID, int]:
    """How many runs the clock wrote, by job."""
    rows = app.execute("select job_id, count(*) from sumaclock.cron_runs where trigger = 'clock' group by 1").fetchall()
    return dict(rows)
