"""History ends too: finished runs, core-api jobs, failed commands and stopped workers go in batches.

Each batch is a transaction of its own (connections are in autocommit), and what it deleted is yielded after it, so that
a caller may say so or stop in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sumaclock_dagster.db import Connection, query

BATCH = 1000


def prune_runs(app: Connection, retention_days: int, batch: int = BATCH) -> Iterator[int]:
    """Delete runs that finished more than `retention_days` days ago. Unfinished runs stay, however old they are."""
    return _walk(app, "prune_batch_of_runs", {"retention_days": retention_days, "batch": batch})


def prune_core_api_jobs(app: Connection, retention_days: int, batch: int = BATCH) -> Iterator[int]:
    """Delete core-api jobs that ended more than `retention_days` days ago. Their keys are free again then."""
    return _walk(app, "prune_batch_of_core_api_jobs", {"retention_days": retention_days, "batch": batch})


def prune_launches(app: Connection, retention_days: int, batch: int = BATCH) -> Iterator[int]:
    """Delete launches that ended more than `retention_days` days ago. The Dagster runs are Dagster's to keep."""
    return _walk(app, "prune_batch_of_launches", {"retention_days": retention_days, "batch": batch})


def prune_workers(app: Connection, retention_days: int, batch: int = BATCH) -> Iterator[int]:
    """Delete workers that stopped more than `retention_days` days ago."""
    deleted = batch
    while deleted == batch:
        values = {"retention_days": retention_days, "batch": batch}
        deleted = app.execute(query("prune_batch_of_workers"), values).rowcount
        yield deleted


def prune_failed_commands(app: Connection, retention_days: int, batch: int = BATCH) -> Iterator[int]:
    """Delete one-off commands, of all roles, that failed for good more than `retention_days` days ago."""
    deleted = batch
    while deleted == batch:
        values = {"days": retention_days, "most": batch}
        deleted = int(app.execute(query("prune_batch_of_job_errors"), values).fetchall()[0][0])
        yield deleted


def prune_system_job_runs(app: Connection, retention_days: int, batch: int = BATCH) -> Iterator[int]:
    """Delete periods of system jobs that began more than `retention_days` days ago. Each job's newest stays."""
    deleted = batch
    while deleted == batch:
        values = {"retention_days": retention_days, "batch": batch}
        deleted = app.execute(query("prune_batch_of_system_job_runs"), values).rowcount
        yield deleted


def _walk(conn: Connection, name: str, values: Mapping[str, Any]) -> Iterator[int]:
    """Delete along the ids, oldest first, until a batch holds nothing old. Ids are given in the order of time."""
    after: int | None = 0
    past = True
    while past and after is not None:
        row = conn.execute(query(name), {**values, "after": after}).fetchone()
        after, past, deleted = row or (None, False, 0)
        yield deleted
