"""Letting a job fire: by a clock job of its own, or by the slot of its schedule.

Who changes a job that fires leaves it in the way in which it fires; only a sync moves it to the other. A new job, and
one that fires again, takes the way that the clock is set to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row

from sumaclock_dagster.clock.bulk import Changes, NamedClockJob, change_many, read_role_and_port
from sumaclock_dagster.clock.command import firing_command
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.clock.slots import slot_id
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError


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
            leave_slots(app, [job_id])
        clock.schedule(job_id, schedule, careful=careful)
        return
    hold_slots(app, clock, [schedule])
    if before is not None and fired and was_in_slot and before.schedule == schedule:
        # Nothing changes, so somebody wants to be sure.
        clock.place_slot(schedule, look=True)
        return
    if not (new or was_in_slot):
        clock.unschedule(job_id)
    join_slots(app, [job_id])


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Where the job of a task is to fire, at a raw schedule; or nowhere, where `fires` is False. in_slot: the slot of
    its schedule fires it until now."""

    job_id: UUID
    schedule: str
    fires: bool
    in_slot: bool


def place_task_jobs(app: Connection, clock: Clock, places: Sequence[TaskPlace]) -> None:
    """The same for tasks' jobs, which change their way at once: of two firings the second finds that the first was. A
    job that fires nowhere stays in its slot, which leaves it out once it is not enabled. At most 500 of them."""
    firing = [place for place in places if place.fires]
    in_pg_cron = {place.job_id: "" for place in places if not (place.fires or place.in_slot)}
    if clock.has_slots:
        hold_slots(app, clock, {place.schedule for place in firing})
        join_slots(app, [place.job_id for place in firing if not place.in_slot])
    else:
        leave_slots(app, [place.job_id for place in firing if place.in_slot])
        in_pg_cron |= {place.job_id: place.schedule for place in firing}
    if in_pg_cron:
        _set_clock_jobs(clock, in_pg_cron)


def hold_slots(app: Connection, clock: Clock, schedules: Collection[str]) -> None:
    """See that the slots of these schedules fire, and keep them until the transaction on `app` ends."""
    slots = {slot_id(schedule): schedule for schedule in schedules}
    if not slots:
        return
    app.execute(query("hold_slots"), {"ids": list(slots)})
    noted = {row[0] for row in app.execute(query("list_slots"), {"ids": list(slots)}).fetchall()}
    for slot, schedule in slots.items():
        if slot not in noted:
            clock.place_slot(schedule)


def join_slots(app: Connection, job_ids: Sequence[UUID]) -> None:
    if job_ids:
        app.execute(query("join_slots"), {"ids": job_ids})


def leave_slots(app: Connection, job_ids: Sequence[UUID]) -> None:
    if job_ids:
        app.execute(query("leave_slots"), {"ids": job_ids})


def _set_clock_jobs(clock: Clock, schedules: Mapping[UUID, str]) -> None:
    """Let each of these jobs have a clock job with this schedule and the plain command, or none where it is ""."""
    if len(schedules) == 1:
        for job_id, schedule in schedules.items():
            if schedule:
                clock.schedule(job_id, schedule)
            else:
                clock.unschedule(job_id)
        return
    role = read_role_and_port(clock)[0]

    def decide(named: list[NamedClockJob]) -> Changes:
        found = {row.job_id: row for row in named if row.username == role}
        changes = Changes()
        for job_id, schedule in schedules.items():
            _decide(changes, clock, job_id, schedule, found.get(job_id))
        return changes

    change_many(clock, schedules.keys(), decide)


def _decide(changes: Changes, clock: Clock, job_id: UUID, schedule: str, found: NamedClockJob | None) -> None:
    if found is not None and found.database != clock.database_name:
        raise SumaclockError(f"The clock job of job {job_id} is another database's.")
    wanted = (schedule, firing_command(job_id), True)
    if found is not None and (found.schedule, found.command, found.active) == wanted:
        return
    # Scheduling an existing name never makes it active again.
    if found is not None and not (schedule and found.active):
        changes.removed.append(found.jobid)
    if schedule:
        changes.placed.append((job_id, schedule, False))
