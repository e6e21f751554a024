"""Whose turn a system job is: one row for each period, and one advisory lock for each job.

Who inserts the row of (name, period) executes it. The lock of the name belongs to the executing session, so a job never
overlaps itself, however long it takes, and one whose worker died is free at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import class_row

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.system_jobs import SystemJob

# As for runs: what kills its worker each time is left to the next period.
MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Look:
    """is_open: whether the current period waits to be executed, or is being executed. next_seconds: until the next."""

    name: str
    is_open: bool
    next_seconds: float


@dataclass(frozen=True, slots=True)
class Taken:
    """One period of one system job, and which of its attempts this is."""

    name: str
    period: datetime
    attempt: int


@dataclass(frozen=True, slots=True)
class SystemJobState:
    """A system job as people see it. period, started_at, finished_at: of the newest period, None before the first.
    ended_at, duration_seconds, result, error: of the last that ended; the error also tells of workers that died with
    it. Times are aware."""

    name: str
    every_seconds: int
    period: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempts: int | None
    worker_id: int | None
    ended_at: datetime | None
    duration_seconds: float | None
    error: str | None
    result: Any
    next_period: datetime
    live_workers: int
    is_overdue: bool
    is_running: bool

    @property
    def is_fresh(self) -> bool:
        """Whether it ended without an error within the current period or the last."""
        last_but_one = self.next_period - timedelta(seconds=2 * self.every_seconds)
        return self.ended_at is not None and self.error is None and self.ended_at >= last_but_one

    @property
    def word(self) -> str:
        """overdue, running, failed, done, or "not yet"."""
        if self.is_overdue or self.is_running:
            return "overdue" if self.is_overdue else "running"
        return "failed" if self.error is not None else "done" if self.ended_at else "not yet"


def look(conn: Connection, jobs: Iterable[SystemJob]) -> list[Look]:
    """What there is to do now. Locks and writes nothing."""
    values = {**_names(jobs), "most_attempts": MOST_ATTEMPTS}
    return conn.cursor(row_factory=class_row(Look)).execute(query("look_at_system_jobs"), values).fetchall()


def take(conn: Connection, job: SystemJob, worker_id: int) -> tuple[bool, Taken | None]:
    """Take the job's current period for this session. Returns whether the job was free, and what was taken: None where
    another session executes it, or its current period has been executed. Then this session holds nothing."""
    values = {"name": job.name, "every": job.every_seconds, "worker": worker_id, "most_attempts": MOST_ATTEMPTS}
    row = conn.execute(query("take_system_job"), values).fetchone()
    mine, period, attempt = row or (False, None, None)
    if mine and period is None:
        let_go(conn, job.name)
    return bool(mine), None if period is None or attempt is None else Taken(job.name, period, attempt)


def retake(conn: Connection, worker_id: int, taken: Taken) -> tuple[bool, bool]:
    """Take the lock for a new session. Returns whether it is this session's, and whether the job went to another."""
    row = conn.execute(query("retake_system_job"), _values(worker_id, taken)).fetchone()
    held, lost = row or (False, True)
    return bool(held), bool(lost)


def finish(conn: Connection, worker_id: int, taken: Taken, result: str | None, error: str | None) -> bool:
    """Write how it ended (result: JSON text). False when it was another's by then, and nothing is written."""
    values = {**_values(worker_id, taken), "result": None if error is not None else result, "error": error}
    return conn.execute(query("finish_system_job"), values).rowcount == 1


def give_back(conn: Connection, worker_id: int, taken: Taken) -> bool:
    """Leave it to another worker without counting the attempt."""
    return conn.execute(query("give_back_system_job"), _values(worker_id, taken)).rowcount == 1


def let_go(conn: Connection, name: str) -> None:
    """Release the lock of the name, if this session holds it."""
    conn.execute(query("let_go_of_system_job"), {"name": name})


def list_system_jobs(conn: Connection, jobs: Collection[SystemJob]) -> list[SystemJobState]:
    """The state of each, by name."""
    cursor = conn.cursor(row_factory=class_row(SystemJobState))
    return cursor.execute(query("list_system_jobs"), {**_names(jobs), "most_attempts": MOST_ATTEMPTS}).fetchall()


def _names(jobs: Iterable[SystemJob]) -> dict[str, Any]:
    listed = list(jobs)
    return {"names": [job.name for job in listed], "every": [float(job.every_seconds) for job in listed]}


def _values(worker_id: int, taken: Taken) -> dict[str, Any]:
    return {"name": taken.name, "period": taken.period, "attempt": taken.attempt, "worker": worker_id}
