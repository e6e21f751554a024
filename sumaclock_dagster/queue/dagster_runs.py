"""Dagster runs that stand for workers, as the database sees them."""

from __future__ import annotations

from collections.abc import Sequence

from sumaclock_dagster.db import Connection, query

QUIET_SECONDS = 300


def gone_dagster_runs(
    conn: Connection, dagster_run_ids: Sequence[str], quiet_seconds: float = QUIET_SECONDS
) -> set[str]:
    """Of these Dagster runs of the job `work`, those whose worker has no session, and neither showed a sign of life nor
    ended within `quiet_seconds`; and those that never registered a worker: ask only about such that had the time."""
    values = {"ids": list(dagster_run_ids), "quiet": quiet_seconds}
    return {row[0] for row in conn.execute(query("list_gone_dagster_runs"), values).fetchall()}
