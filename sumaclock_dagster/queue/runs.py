"""What people do with runs: look, fire, try again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg import Cursor
from psycopg.rows import RowMaker, class_row

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import Run, RunStatus, RunTrigger, SumaclockError


def fire(conn: Connection, job_id: UUID, trigger: RunTrigger = RunTrigger.MANUAL) -> int:
    """Write one pending run now, paused job or not, and notify. Returns its id. Raises SumaclockError for no job."""
    row = conn.execute(query("fire_run"), {"job": job_id, "trigger": trigger.value}).fetchone()
    if row is None:
        raise SumaclockError(f"There is no job {job_id}; `sumaclock jobs list` shows those that exist.")
    return int(row[0])


def get_run(conn: Connection, run_id: int) -> Run:
    """The run. Raises SumaclockError when there is none."""
    found = _runs(conn, "get_run", {"id": run_id})
    if not found:
        raise SumaclockError(
            f"There is no run {run_id}; it may have been pruned. `sumaclock runs list` shows the runs."
        )
    return found[0]


def list_runs(
    conn: Connection,
    *,
    status: RunStatus | None = None,
    job_id: UUID | None = None,
    kind: str | None = None,
    organization_id: str | None = None,
    limit: int = 50,
) -> list[Run]:
    """Runs that match all given filters, newest first."""
    parameters = {
        "status": status.value if status else None,
        "job": job_id,
        "kind": kind,
        "organization": organization_id,
        "limit": limit,
    }
    return _runs(conn, "list_runs", parameters)


def runs_since(conn: Connection, after_id: int, limit: int = 1000) -> list[Run]:
    """Runs with a higher id, oldest first."""
    return _runs(conn, "list_runs_since", {"after": after_id, "limit": limit})


def retry_run(conn: Connection, run_id: int) -> Run:
    """Put a failed or skipped run back to pending with its attempts counted anew; its idempotency key stays.

    Raises SumaclockError when there is no such run or it is neither failed nor skipped.
    """
    if conn.execute(query("retry_run"), {"id": run_id}).fetchone() is None:
        run = get_run(conn, run_id)
        raise SumaclockError(f"Run {run_id} is {run.status.value}; only a failed or skipped run can be tried again.")
    return get_run(conn, run_id)


def _runs(conn: Connection, name: str, parameters: dict[str, Any]) -> list[Run]:
    return conn.cursor(row_factory=_run_row).execute(query(name), parameters).fetchall()


def _run_row(cursor: Cursor[Any]) -> RowMaker[Run]:
    plain = class_row(dict)(cursor)

    def make(values: Any) -> Run:
        row = plain(values)
        return Run(**{**row, "status": RunStatus(row["status"]), "trigger": RunTrigger(row["trigger"])})

    return make
