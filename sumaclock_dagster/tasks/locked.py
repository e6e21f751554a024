"""A task under its lock: reading it, and the writes that settling makes. All in the caller's transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from sumaclock_dagster.calendar import zone_data_version
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.handlers import HandlerRun
from sumaclock_dagster.model import RunTrigger, SumaclockError
from sumaclock_dagster.storable import clean_text
from sumaclock_dagster.tasks.execute import Executed
from sumaclock_dagster.tasks.placement import Placement
from sumaclock_dagster.tasks.records import TaskTrigger, idempotency_key

TRIGGERS = {
    RunTrigger.MANUAL.value: TaskTrigger.MANUAL,
    RunTrigger.CATCH_UP.value: TaskTrigger.HEARTBEAT,
    RunTrigger.CLOCK.value: TaskTrigger.CLOCK,
    # Due when it was requested: created, or placed so late that its clock job may have missed its minute.
    RunTrigger.REQUEST.value: TaskTrigger.CLOCK,
}


@dataclass(frozen=True, slots=True)
class Locked:
    """A locked task as settling needs it. `payload` is JSON text.

    now: the database's clock after the lock.
    mine_status, mine_error: how this very run executed the last occurrence, if it did.
    asked_status: how the task run of the run's own moment ended, if there is one.
    next_status: the same of the next occurrence.
    """

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


def lock_and_read(conn: Connection, run: HandlerRun) -> Locked | None:
    """The task of the run's job, locked until the transaction ends; None where the job has none."""
    conn.execute(query("lock_task"), {"job": run.job_id})
    values = {"job": run.job_id, "run": run.id, "scheduled_at": run.scheduled_at}
    return conn.cursor(row_factory=class_row(Locked)).execute(query("read_locked_task"), values).fetchone()


def record(conn: Connection, run: HandlerRun, task: Locked, scheduled_for: datetime, executed: Executed) -> None:
    """Write the task run. Raises SumaclockError, so that all is rolled back, where the occurrence is done already."""
    values = {
        "task": task.id,
        "scheduled_for": scheduled_for,
        "trigger": TRIGGERS[run.trigger].value,
        "status": executed.status,
        "result": executed.result,
        "error": executed.error,
        "run": run.id,
        "key": idempotency_key(task.id, scheduled_for),
        "started_at": task.now,
    }
    if conn.execute(query("record_task_run"), values).fetchone() is None:
        raise SumaclockError(f"Task {task.id} was executed for {shown(scheduled_for)} by another run meanwhile.")


def move(conn: Connection, task: Locked, placement: Placement, occurrence: datetime | None = None) -> None:
    """Place the task. `occurrence`: the one that was executed, if one was."""
    values = {
        "task": task.id,
        "next_run_at": placement.occurrence,
        "last": occurrence,
        "upcoming": json.dumps(placement.upcoming),
        "zone_data": zone_data_version(),
        "schedule": placement.clock_schedule,
    }
    conn.execute(query("move_task"), values)


def stop(conn: Connection, task: Locked, status: str, reason: str | None, occurrence: datetime | None = None) -> None:
    """Let the task fire no more: paused, done or failed."""
    text = None if reason is None else clean_text(reason, 2000)
    conn.execute(query("stop_task"), {"task": task.id, "status": status, "reason": text, "last": occurrence})


def shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
