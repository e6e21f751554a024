"""Letting a job fire: by a clock job of its own, or by the slot of its schedule.

Who changes a job that fires leaves it in the way in which it fires; only a sync moves it to the other. A new job, and
one that fires again, takes the way that the clock is set to.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row

from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.clock.slots import slot_id
from sumaclock_dagster.db import Connection, query


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stands before a change. in_slot: the slot of its schedule fires it."""

    schedule: str
    enabled: bool
    in_slot: bool


def read_standing(app: Connection, job_id: UUID) -> Standing | None:
    """None for an unknown job."""
    cursor = app.cursor(row_factory=class_row(Standing))
    return cursor.execute(query("read_standing"), {"job_id": job_id}).fetchone()


def place_job(
    app: Connection, clock: Clock, job_id: UUID, schedule: str, *, careful: bool, before: Standing | None, new: bool
) -> None:
    """Let a job fire, in the transaction that is open on `app`. new: its id was made just now, so nothing of it can be
    left over in pg_cron. Raises SumaclockError."""
    was_in_slot = before is not None and before.in_slot
    fired = before is not None and before.enabled
    if not (was_in_slot if fired else clock.has_slots):
        if was_in_slot:
            leave_slot(app, job_id)
        clock.schedule(job_id, schedule, careful=careful)
        return
    hold_slot(app, clock, schedule)
    if before is not None and fired and was_in_slot and before.schedule == schedule:
        # Nothing changes, so somebody wants to be sure.
        clock.place_slot(schedule, look=True)
        return
    if not (new or was_in_slot):
        clock.unschedule(job_id)
    join_slot(app, job_id)


def place_task_job(app: Connection, clock: Clock, job_id: UUID, schedule: str, *, in_slot: bool) -> None:
    """The same for a task's job, which changes its way at once: of two firings the second finds that the first was."""
    if clock.has_slots:
        hold_slot(app, clock, schedule)
        if not in_slot:
            join_slot(app, job_id)
        return
    if in_slot:
        leave_slot(app, job_id)
    clock.schedule(job_id, schedule)


def hold_slot(app: Connection, clock: Clock, schedule: str) -> None:
    """See that the slot of a schedule fires, and keep it until the transaction on `app` ends."""
    slot = slot_id(schedule)
    app.execute(query("hold_slot"), {"id": slot})
    if app.execute(query("list_slots"), {"ids": [slot]}).fetchone() is None:
        clock.place_slot(schedule)


def join_slot(app: Connection, job_id: UUID) -> None:
    app.execute(query("join_slots"), {"ids": [job_id]})


def leave_slot(app: Connection, job_id: UUID) -> None:
    app.execute(query("leave_slots"), {"ids": [job_id]})
