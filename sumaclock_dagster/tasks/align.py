"""Tasks' clock jobs follow their rows. Done after each settling, so that a crash in between is mended by the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.clock.placing import TaskPlace, place_task_jobs
from sumaclock_dagster.db import Connection, query


@dataclass(frozen=True, slots=True)
class Placed:
    """What the rows of a task and its job say. next_run_at: None also where a worker is about to place the task."""

    job_id: UUID
    fires: bool
    next_run_at: datetime | None
    schedule: str
    in_slot: bool


def align(conn: Connection, clock: Clock, job_id: UUID) -> None:
    """Let the clock job of a task's job be what the committed row says: at its next occurrence, or gone. By a slot it
    fires without a change of pg_cron, once the slot is there.

    The lock on the job's id lets one session at a time look and act, so what the last of them saw stands. `enabled`
    falls after the clock job is gone, and rises with it: until then a run that a crash left behind is still executed,
    and comes here again. Raises SumaclockError when pg_cron can't be reached.
    """
    with conn.transaction():
        conn.execute(query("lock_job"), {"job_id": job_id})
        _align(conn, clock, [job_id])


def align_together(conn: Connection, clock: Clock, job_ids: Sequence[UUID]) -> set[UUID]:
    """The same for up to 500 jobs at once, except those whose lock somebody holds. Returns the ids of the others."""
    with conn.transaction():
        locked = [row[0] for row in conn.execute(query("try_lock_jobs"), {"ids": job_ids}).fetchall()]
        _align(conn, clock, locked)
    return set(locked)


def _align(conn: Connection, clock: Clock, job_ids: Sequence[UUID]) -> None:
    cursor = conn.cursor(row_factory=class_row(Placed))
    rows = cursor.execute(query("read_task_placements"), {"jobs": job_ids}).fetchall()
    resting = [row for row in rows if not row.fires]
    firing = [row for row in rows if row.fires and row.next_run_at is not None]
    places = [TaskPlace(row.job_id, row.schedule, row.fires, row.in_slot) for row in resting + firing]
    place_task_jobs(conn, clock, places)
    if resting:
        conn.execute(query("disable_task_jobs"), {"jobs": [row.job_id for row in resting]})
    if firing:
        values = {"jobs": [row.job_id for row in firing], "next_run_at": [row.next_run_at for row in firing]}
        conn.execute(query("confirm_task_placements"), values)
