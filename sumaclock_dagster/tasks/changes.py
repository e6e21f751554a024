"""What settling writes, for one task or many: task runs, next occurrences, ends. Each is one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sumaclock_dagster.arrays import int8_array, text_array
from sumaclock_dagster.calendar import zone_data_version
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.storable import clean_text
from sumaclock_dagster.tasks.execute import Executed
from sumaclock_dagster.tasks.placement import Placement
from sumaclock_dagster.tasks.records import TaskTrigger, idempotency_key


@dataclass(frozen=True, slots=True)
class Record:
    """A task run to write. Times by the database's clock."""

    task_id: UUID
    scheduled_for: datetime
    trigger: TaskTrigger
    run_id: int
    executed: Executed
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Move:
    """Place the task. occurrence: the one that was executed, if one was."""

    task_id: UUID
    placement: Placement
    occurrence: datetime | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Let the task fire no more: paused, done or failed."""

    task_id: UUID
    status: str
    reason: str | None
    occurrence: datetime | None = None


Change = Record | Move | Stop


def write(conn: Connection, changes: Sequence[Change]) -> None:
    """Make the changes, at most one of each kind for a task. Raises SumaclockError, so that all is rolled back, where
    an occurrence is done already."""
    _record(conn, [change for change in changes if isinstance(change, Record)])
    _move(conn, [change for change in changes if isinstance(change, Move)])
    _stop(conn, [change for change in changes if isinstance(change, Stop)])


def shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _record(conn: Connection, made: Sequence[Record]) -> None:
    if not made:
        return
    values = {
        "task_ids": _ids(made),
        "scheduled_for": _times([one.scheduled_for for one in made]),
        "triggers": text_array(one.trigger.value for one in made),
        "statuses": text_array(one.executed.status for one in made),
        "results": text_array(one.executed.result for one in made),
        "errors": text_array(one.executed.error for one in made),
        "run_ids": int8_array([one.run_id for one in made]),
        "keys": text_array(idempotency_key(one.task_id, one.scheduled_for) for one in made),
        "started_at": _times([one.started_at for one in made]),
        "finished_at": _times([one.finished_at for one in made]),
    }
    written = {row[0] for row in conn.execute(query("record_task_runs"), values).fetchall()}
    for one in made:
        if one.task_id not in written:
            moment = shown(one.scheduled_for)
            raise SumaclockError(f"Task {one.task_id} was executed for {moment} by another run meanwhile.")


def _move(conn: Connection, moves: Sequence[Move]) -> None:
    if not moves:
        return
    values = {
        "task_ids": _ids(moves),
        "next_run_at": _times([one.placement.occurrence for one in moves]),
        "last_at": _times([one.occurrence for one in moves]),
        "upcoming": text_array(one.placement.upcoming for one in moves),
        "schedules": text_array(one.placement.clock_schedule for one in moves),
        "zone_data": zone_data_version(),
    }
    conn.execute(query("move_tasks"), values)


def _stop(conn: Connection, stops: Sequence[Stop]) -> None:
    if not stops:
        return
    values = {
        "task_ids": _ids(stops),
        "statuses": text_array(one.status for one in stops),
        "reasons": text_array(None if one.reason is None else clean_text(one.reason, 2000) for one in stops),
        "last_at": _times([one.occurrence for one in stops]),
    }
    conn.execute(query("stop_tasks"), values)


def _ids(changes: Sequence[Change]) -> str:
    return text_array(str(change.task_id) for change in changes)


def _times(moments: Sequence[datetime | None]) -> str:
    return text_array(None if moment is None else moment.isoformat() for moment in moments)
