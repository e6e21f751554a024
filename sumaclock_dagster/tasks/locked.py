"""Tasks under their locks, as settling needs them. All in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.handlers import HandlerRun
from sumaclock_dagster.tasks.access import Owner


@dataclass(frozen=True, slots=True)
class Locked:
    """A locked task as settling needs it. `payload` is JSON text.

    now: the database's clock after the lock.
    mine_status, mine_error: how this very run executed the last occurrence, if it did.
    asked_status: how the task run of the run's own moment ended, if there is one.
    next_status: the same of the next occurrence.
    """

    job_id: UUID
    id: UUID
    organization_id: str
    user_id: str
    kind: str
    title: str
    payload: str
    cron: str | None
    instant: datetime | None
    timezone: str
    status: str
    next_run_at: datetime | None
    zone_data: str | None
    deleted: bool
    now: datetime
    mine_status: str | None
    mine_error: str | None
    asked_status: str | None
    next_status: str | None

    @property
    def owner(self) -> Owner:
        return self.organization_id, self.user_id


def lock_and_read(conn: Connection, run: HandlerRun) -> Locked | None:
    """The task of the run's job, locked until the transaction ends; None where the job has none."""
    conn.execute(query("lock_task"), {"job": run.job_id})
    return _read(conn, [run]).get(run.job_id)


def try_lock_and_read(conn: Connection, runs: Sequence[HandlerRun]) -> dict[UUID, Locked]:
    """The tasks of the runs' jobs, by job; without those that somebody else has locked. One run of each job."""
    rows = conn.execute(query("try_lock_tasks"), {"jobs": [run.job_id for run in runs]}).fetchall()
    locked = {row[0] for row in rows}
    return _read(conn, [run for run in runs if run.job_id in locked])


def _read(conn: Connection, runs: Sequence[HandlerRun]) -> dict[UUID, Locked]:
    values = {
        "jobs": [run.job_id for run in runs],
        "runs": [run.id for run in runs],
        "moments": [run.scheduled_at for run in runs],
    }
    rows = conn.cursor(row_factory=class_row(Locked)).execute(query("read_locked_tasks"), values).fetchall()
    return {task.job_id: task for task in rows}
