"""History ends too: old finished runs and stopped workers are deleted in small batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sumaclock_dagster.db import Connection, query

BATCH = 1000


@dataclass(frozen=True, slots=True)
class Pruned:
    """Deleted rows so far. `batches`: transactions that looked at runs."""

    runs: int
    workers: int
    batches: int


def prune(conn: Connection, retention_days: int, batch: int = BATCH) -> Iterator[Pruned]:
    """Delete runs that finished, and workers that stopped, more than `retention_days` days ago.

    Each batch of at most `batch` rows is a transaction of its own (`conn` is in autocommit), and the totals so far are
    yielded after it, so that a caller may stop in between. Unfinished runs stay, however old they are.
    """
    runs = batches = after = 0
    while True:
        values = {"after": after, "batch": batch, "retention_days": retention_days}
        row = conn.execute(query("prune_batch_of_runs"), values).fetchone()
        last_id, past, deleted = row or (None, False, 0)
        runs, batches = runs + deleted, batches + 1
        yield Pruned(runs, 0, batches)
        if last_id is None or not past:
            break
        after = last_id

    workers = 0
    while True:
        deleted = conn.execute(
            query("prune_batch_of_workers"), {"batch": batch, "retention_days": retention_days}
        ).rowcount
        workers += deleted
        yield Pruned(runs, workers, batches)
        if deleted < batch:
            break
