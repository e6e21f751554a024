"""What people and apps do with tasks. Every function joins the transaction that the caller has open on `conn`.

Each change is placed by a worker within milliseconds of the commit: until then `next_run_at` is None. The arguments are
checked as a worker would check them, so what is accepted here is placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from types import EllipsisType
from typing import Any
from uuid import UUID

from psycopg import Cursor, errors
from psycopg.rows import RowMaker, class_row

from sumaclock_dagster.calendar import DEFAULT_TIMEZONE, parse_schedule
from sumaclock_dagster.clock.payload import check_text, payload_json
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.tasks.records import Task, TaskRunRow, TaskStatus, TaskTrigger, Upcoming

REFUSALS = (errors.InvalidParameterValue, errors.NoDataFound, errors.ObjectNotInPrerequisiteState)


def create(
    conn: Connection,
    *,
    organization_id: str,
    user_id: str,
    kind: str,
    title: str = "",
    payload: Any = None,
    cron: str | None = None,
    instant: datetime | None = None,
    timezone: str = DEFAULT_TIMEZONE,
) -> UUID:
    """Create a task and return its id. Give `cron` (five fields in the local time of `timezone`) or an aware `instant`;
    one of the last hour runs at once. `payload`: anything JSON-able up to 1 MB; None means {}.

    Raises SumaclockError for whatever would keep the task from being placed.
    """
    parse_schedule(cron, instant, timezone)
    values = _texts(organization_id=organization_id, user_id=user_id, kind=kind, title=title)
    values |= {"payload": payload_json({} if payload is None else payload)}
    values |= {"cron": cron, "instant": instant, "timezone": timezone}
    created: UUID = _call(conn, "create_task", values)
    return created


def update(
    conn: Connection,
    task_id: UUID,
    *,
    kind: str | None = None,
    title: str | None = None,
    payload: Any | EllipsisType = ...,
    cron: str | None = None,
    instant: datetime | None = None,
    timezone: str | None = None,
) -> None:
    """Change what is given and leave the rest (payload `...` means unchanged, None is JSON null). A new cron or instant
    takes the place of the old one and is computed from now.

    Raises SumaclockError for an unknown task and for what `create` refuses.
    """
    if cron is not None or instant is not None:
        parse_schedule(cron, instant, timezone or DEFAULT_TIMEZONE)
    elif timezone is not None:
        parse_schedule(cron="0 0 * * *", timezone=timezone)
    values = _texts(kind=kind, title=title) | {"task_id": task_id}
    values |= {"payload": None if payload is ... else payload_json(payload)}
    values |= {"cron": cron, "instant": instant, "timezone": timezone}
    _call(conn, "update_task", values)


def pause(conn: Connection, task_id: UUID, reason: str | None = None) -> None:
    """Stop the task's firings and keep its history. Raises SumaclockError for an unknown task or one that is over."""
    _call(conn, "pause_task", _texts(reason=reason) | {"task_id": task_id})


def resume(conn: Connection, task_id: UUID) -> None:
    """Let a paused or failed task fire again, computed from now. Raises SumaclockError for an unknown task, one that is
    done, and one whose instant has passed meanwhile."""
    _call(conn, "resume_task", {"task_id": task_id})


def delete(conn: Connection, task_id: UUID) -> None:
    """End the task for good; it stays as history. Raises SumaclockError for an unknown task."""
    _call(conn, "delete_task", {"task_id": task_id})


def run_now(conn: Connection, task_id: UUID) -> int:
    """Run the task once, whatever its status, without moving its schedule. Returns the id of its run in the queue.
    Raises SumaclockError for an unknown task."""
    return int(_call(conn, "run_task_now", {"task_id": task_id}))


def preview(conn: Connection, task_id: UUID, count: int = 10) -> list[Upcoming]:
    """Up to 10 next occurrences, as they were when the task was placed last. Raises SumaclockError for an unknown task.
    For a schedule that is no task yet: `sumaclock_dagster.calendar.preview`."""
    with _refusals(conn):
        rows = conn.execute(query("preview_task"), {"task_id": task_id, "count": count}).fetchall()
    return [Upcoming(*row) for row in rows]


def get(conn: Connection, task_id: UUID) -> Task:
    """The task, deleted or not. Raises SumaclockError when there is none."""
    found = conn.cursor(row_factory=_task_row).execute(query("get_task"), {"task_id": task_id}).fetchone()
    if found is None:
        raise SumaclockError(f"There is no task {task_id}.")
    return found


def list_tasks(
    conn: Connection,
    *,
    organization_id: str | None = None,
    user_id: str | None = None,
    kind: str | None = None,
    status: TaskStatus | None = None,
    deleted: bool = False,
    limit: int = 100,
) -> list[Task]:
    """Tasks that match all given filters, newest first; those that were deleted only where `deleted`."""
    values = _texts(organization_id=organization_id, user_id=user_id, kind=kind)
    values |= {"status": status and status.value, "deleted": deleted, "limit": limit}
    return conn.cursor(row_factory=_task_row).execute(query("list_tasks"), values).fetchall()


def list_task_runs(conn: Connection, task_id: UUID, limit: int = 50) -> list[TaskRunRow]:
    """The task's runs, newest first."""
    cursor = conn.cursor(row_factory=_task_run_row)
    return cursor.execute(query("list_task_runs"), {"task_id": task_id, "limit": limit}).fetchall()


def _texts(**texts: str | None) -> dict[str, Any]:
    for name, text in texts.items():
        if text is not None:
            check_text(name, text)
    return dict(texts)


def _call(conn: Connection, name: str, values: dict[str, Any]) -> Any:
    with _refusals(conn):
        row = conn.execute(query(name), values).fetchone()
    return row[0] if row else None


@contextmanager
def _refusals(conn: Connection) -> Iterator[None]:
    """A refusal leaves the caller's transaction as it was."""
    try:
        with conn.transaction():
            yield
    except REFUSALS as error:
        said = " ".join(filter(None, (error.diag.message_primary, error.diag.message_hint)))
        raise SumaclockError(said) from None


def _task_row(cursor: Cursor[Any]) -> RowMaker[Task]:
    plain = class_row(dict)(cursor)

    def make(values: Any) -> Task:
        row = plain(values)
        return Task(**{**row, "status": TaskStatus(row["status"])})

    return make


def _task_run_row(cursor: Cursor[Any]) -> RowMaker[TaskRunRow]:
    plain = class_row(dict)(cursor)

    def make(values: Any) -> TaskRunRow:
        row = plain(values)
        return TaskRunRow(**{**row, "trigger": TaskTrigger(row["trigger"])})

    return make
