"""Task runs of the last days as tables. Lateness: start minus the minute of the occurrence, in seconds; task runs that
somebody asked for by hand have none."""

from __future__ import annotations

import pandas as pd

from sumaclock_dagster.db import Connection
from sumaclock_dagster.reports.frames import read_frame

DAYS = 7
EDGES = (0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)
LATE_LABELS = ("under 0.1 s", "0.1 to 1 s", "1 to 10 s", "10 to 60 s", "1 to 10 min", "10 to 60 min", "over 1 h")


def totals(conn: Connection, days: int = DAYS) -> pd.Series[float]:
    """task_runs, done, failed, skipped, lateness_p50 and lateness_p99 (NaN where nothing was late or early)."""
    return read_frame(conn, "sum_up_task_runs", {"days": days}).iloc[0].astype(float)


def by_organization(conn: Connection, days: int = DAYS, limit: int = 100) -> pd.DataFrame:
    """One row for each of the `limit` organisations with most task runs.

    Columns: organization_id, done, failed, skipped, lateness_p50, lateness_p99.
    """
    return read_frame(conn, "count_task_runs_by_organization", {"days": days, "limit": limit})


def by_lateness(conn: Connection, days: int = DAYS) -> pd.Series[int]:
    """How many task runs began how late; the index is LATE_LABELS."""
    counts = read_frame(conn, "count_task_runs_by_lateness", {"days": days, "edges": list(EDGES)})
    found = dict(zip(counts["bucket"], counts["task_runs"], strict=True))
    return pd.Series([found.get(bucket, 0) for bucket in range(len(LATE_LABELS))], index=LATE_LABELS, dtype="int64")


def recent(conn: Connection, days: int = DAYS, limit: int = 100) -> pd.DataFrame:
    """The newest `limit` task runs, newest first.

    Columns: task_run_id, title, kind, organization_id, user_id, timezone, scheduled_for, trigger, status, lateness,
    error (first line, at most 300 characters; "" for none), task_id, dagster_run_id (UUID or None).
    """
    return read_frame(conn, "list_recent_task_runs", {"days": days, "limit": limit})
