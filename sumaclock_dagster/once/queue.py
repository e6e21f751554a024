"""The rows: queue a command, look at what waits and what failed, cancel, try again. All as the connection's role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg
from psycopg import errors
from psycopg.rows import class_row

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError


@dataclass(frozen=True, slots=True)
class QueuedCommand:
    """A row of `job_queue_status`. sqlstate and message: how the last attempt failed."""

    jobid: int
    queued_by: str
    state: str
    command: str
    priority: int
    attempts: int
    max_attempts: int
    queued_at: datetime
    due_at: datetime
    started_at: datetime | None
    timeout: timedelta | None
    dedup_key: str | None
    note: str | None
    sqlstate: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class FailedCommand:
    """A row of `job_errors`: a command that failed for good."""

    jobid: int
    queued_by: str
    command: str
    attempts: int
    max_attempts: int
    queued_at: datetime
    started_at: datetime
    failed_at: datetime
    sqlstate: str
    message: str
    detail: str | None
    hint: str | None
    context: str | None
    dedup_key: str | None
    note: str | None


def schedule_once(
    conn: Connection,
    command: str,
    *,
    max_attempts: int = 5,
    run_after: datetime | None = None,
    priority: int = 0,
    timeout: timedelta | None = None,
    dedup_key: str | None = None,
    note: str | None = None,
) -> tuple[int, list[str]]:
    """Queue a command in the connection's transaction. Returns its jobid, and PostgreSQL's warnings: the command is
    queued, but perhaps nobody looks. Raises SumaclockError for what the queue refuses."""
    warnings: list[str] = []

    def note_warning(diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            warnings.append(_sentences(diagnostic))

    values = {
        "command": command,
        "max_attempts": max_attempts,
        "run_after": run_after,
        "priority": priority,
        "timeout": timeout,
        "dedup_key": dedup_key,
        "note": note,
    }
    conn.add_notice_handler(note_warning)
    try:
        with _refusals():
            row = conn.execute(query("schedule_once"), values).fetchall()[0]
    finally:
        conn.remove_notice_handler(note_warning)
    return int(row[0]), warnings


def cancel(conn: Connection, jobid: int) -> str:
    """'removed' for a command that waited; 'cancelling' for one that runs, which ends within about 5 seconds."""
    with _refusals():
        return str(conn.execute(query("cancel_once"), {"jobid": jobid}).fetchall()[0][0])


def retry(conn: Connection, jobid: int) -> int:
    """Queue a failed command again. Returns its new jobid."""
    with _refusals():
        return int(conn.execute(query("retry_once"), {"jobid": jobid}).fetchall()[0][0])


def list_queued(conn: Connection, limit: int = 50) -> list[QueuedCommand]:
    """What runs, then what waits, in the order in which it will be taken."""
    with conn.cursor(row_factory=class_row(QueuedCommand)) as cursor:
        return cursor.execute(query("list_queued_commands"), {"limit": limit}).fetchall()


def list_failed(conn: Connection, limit: int = 50) -> list[FailedCommand]:
    """What failed for good, newest first."""
    with conn.cursor(row_factory=class_row(FailedCommand)) as cursor:
        return cursor.execute(query("list_failed_commands"), {"limit": limit}).fetchall()


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName):
        raise SumaclockError("The app database has no queue of commands; run `sumaclock migrate`.") from None
    except (
        errors.InvalidParameterValue,
        errors.ObjectNotInPrerequisiteState,
        errors.NoDataFound,
        errors.UniqueViolation,
    ) as error:
        raise SumaclockError(_sentences(error.diag)) from None
    except errors.InsufficientPrivilege as error:
        raise SumaclockError(
            f"This role may not use the queue ({error.diag.message_primary}). "
            "`sumaclock once enable --role ...` grants it."
        ) from None
    except (errors.DataError, psycopg.DataError) as error:
        raise SumaclockError(f"The queue cannot store this: {error.diag.message_primary or error}.") from None


def _sentences(diagnostic: psycopg.errors.Diagnostic) -> str:
    return " ".join(filter(None, (diagnostic.message_primary, diagnostic.message_hint)))
