"""Workers as the database sees them: requests, sessions, the pool's state, and release of what a dead one held.

A worker lives while a session of its own holds its advisory lock, whatever Dagster says about its Dagster run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import PoolState
from sumaclock_dagster.settings import Settings

# The first key of every worker's advisory lock; the second is the worker's id, and 0 is the pool's own lock.
# The view sumaclock.worker_sessions knows the same number.
LOCK_CLASS = 1937075553
HEARTBEATS_MISSED = 6
OLD_CODE_NOTICE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A registered worker whose session lives. Times are aware."""

    id: int
    code_version: str
    code_location: str | None
    started_at: datetime
    heartbeat_at: datetime
    retires_at: datetime
    dagster_run_id: UUID | None
    host: str | None
    pid: int | None


@dataclass(frozen=True, slots=True)
class Released:
    """How many stale runs went back to pending, and how many were failed after their last attempt."""

    pending: int
    failed: int


def request_worker(conn: Connection, code_version: str, code_location: str | None = None) -> int:
    """Reserve a worker's id. Until it registers or its start time is over, it counts as starting."""
    return int(_one(conn, "request_worker", {"code_version": code_version, "code_location": code_location})[0])


def register(
    conn: Connection,
    worker_id: int,
    *,
    code_version: str,
    dagster_run_id: UUID | None,
    host: str,
    pid: int,
    life_seconds: float,
) -> bool:
    """Take the worker's lock for this session and note that it lives. False while another session holds the lock."""
    if not _one(conn, "lock_worker", {"lock_class": LOCK_CLASS, "worker": worker_id})[0]:
        return False
    parameters = {
        "worker": worker_id,
        "code_version": code_version,
        "dagster_run": dagster_run_id,
        "host": host,
        "pid": pid,
        "life": life_seconds,
    }
    return conn.execute(query("register_worker"), parameters).fetchone() is not None


def end_old_session(conn: Connection, worker_id: int, backend_pid: int) -> None:
    """End the worker's earlier session if it still holds the lock: its client is gone, and the server has not noticed.
    That may take hours otherwise."""
    conn.execute(query("end_old_session"), {"worker": worker_id, "pid": backend_pid})


def renew(conn: Connection, worker_id: int) -> tuple[bool, float]:
    """Renew the worker's heartbeat. Returns (it shall claim nothing more, the database's clock in epoch seconds)."""
    row = conn.execute(query("renew_worker"), {"worker": worker_id}, prepare=True).fetchone()
    return (True, read_clock(conn)) if row is None else (bool(row[0]), float(row[1]))


def retire(conn: Connection, worker_id: int) -> None:
    """Note that the worker claims nothing more, and notify, so that it is replaced while it finishes its runs."""
    conn.execute(query("retire_worker"), {"worker": worker_id})


def read_clock(conn: Connection) -> float:
    """The database's clock in epoch seconds."""
    return float(_one(conn, "read_clock", {})[0])


def end(conn: Connection, worker_id: int) -> None:
    """Note that the worker ended, and notify. Its session's end frees the lock."""
    conn.execute(query("end_worker"), {"worker": worker_id})


def leave_if_surplus(conn: Connection, worker_id: int, settings: Settings, keep: int) -> bool:
    """Retire the worker when `keep` others or more would stay; two that ask at once can't both leave. Who finds
    another asking asks again later: it may have been paused in the middle, and this one has runs to claim."""
    with conn.transaction():
        if not _one(conn, "lock_pool", {"lock_class": LOCK_CLASS})[0]:
            return False
        parameters = {"worker": worker_id, "keep": keep, **_pool_parameters(settings)}
        return conn.execute(query("leave_if_surplus"), parameters).fetchone() is not None


def retire_old_code(
    conn: Connection,
    code_version: str,
    code_location: str | None = None,
    *,
    notice_seconds: float = OLD_CODE_NOTICE_SECONDS,
) -> int:
    """Let workers of other code retire within `notice_seconds`, time for their replacement. Returns how many.

    Those of another code location stay; without a `code_location` none does.
    """
    parameters = {"code_version": code_version, "code_location": code_location, "notice": notice_seconds}
    return int(_one(conn, "retire_old_code", parameters)[0])


def release_dead(conn: Connection, settings: Settings) -> Released:
    """Release the runs of workers whose session ended, and note that those workers ended (rule 5)."""
    parameters = {
        "start": settings.worker_start_seconds,
        "dead_session": settings.dead_session_seconds,
        "max_lost": settings.max_lost,
    }
    return _released(conn, "release_dead_workers", parameters)


def release_silent(conn: Connection, settings: Settings) -> Released:
    """Release runs without a sign of life for a lease, whatever their worker's session says (rule 5). Reads every
    run that the current workers ever claimed, so once a minute is often enough."""
    return _released(conn, "release_silent_runs", {"lease": settings.lease_seconds, "max_lost": settings.max_lost})


def release_stale(conn: Connection, settings: Settings) -> Released:
    """Both kinds of release."""
    dead, silent = release_dead(conn, settings), release_silent(conn, settings)
    return Released(dead.pending + silent.pending, dead.failed + silent.failed)


def pool_state(conn: Connection, settings: Settings) -> PoolState:
    """What the database sees of workers and queue now. `due` is counted up to what the most workers call for."""
    parameters = {
        "start": settings.worker_start_seconds,
        "count_to": settings.runs_per_worker * settings.max_workers,
        **_pool_parameters(settings),
    }
    live, starting, retiring, due, age = _one(conn, "read_pool", parameters)
    return PoolState(int(live), int(starting), int(retiring), int(due), float(age))


def workers_wanted(state: PoolState, settings: Settings) -> int:
    """How many workers to launch now: the minimum always, more with the backlog, one more while runs wait long."""
    target = max(settings.min_workers, math.ceil(state.due / settings.runs_per_worker))
    if state.oldest_due_seconds > 5 and state.due:
        target = max(target, state.live + 1)
    return max(0, min(target, settings.max_workers) - state.live - state.starting)


def other_locations(conn: Connection, code_location: str) -> list[str]:
    """Code locations besides `code_location` whose workers live in this database, by name."""
    found = {worker.code_location for worker in live_workers(conn)} - {None, code_location}
    return sorted(name for name in found if name is not None)


def live_workers(conn: Connection) -> list[WorkerRow]:
    """Registered workers whose session lives, oldest first."""
    return conn.cursor(row_factory=class_row(WorkerRow)).execute(query("list_live_workers")).fetchall()


def _pool_parameters(settings: Settings) -> dict[str, float]:
    return {
        "fresh": settings.heartbeat_seconds * HEARTBEATS_MISSED,
        # A short life must not be all replacement, which would ask for workers without end.
        "ahead": min(settings.replace_ahead_seconds, settings.worker_life_seconds / 2),
    }


def _released(conn: Connection, name: str, parameters: Mapping[str, object]) -> Released:
    pending, failed, _ = _one(conn, name, parameters)
    return Released(int(pending), int(failed))


def _one(conn: Connection, name: str, parameters: Mapping[str, object]) -> tuple[Any, ...]:
    row = conn.execute(query(name), parameters).fetchone()
    assert row is not None  # noqa: S101  (each of these statements returns exactly one row)
    return tuple(row)
