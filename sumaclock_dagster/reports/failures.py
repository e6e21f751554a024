"""Failed runs as tables. All times are UTC."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from sumaclock_dagster.db import Connection
from sumaclock_dagster.reports.frames import read_frame


def recent_failures(conn: Connection, hours: int = 24, limit: int = 100) -> pd.DataFrame:
    """The newest `limit` failed runs of the last `hours`, newest first.

    Columns: run_id, kind, organization_id, user_id, attempts, scheduled_at, finished_at, error (first line, at most
    300 characters), dagster_run_id (UUID or None).
    """
    return read_frame(conn, "list_recent_failures", {"hours": hours, "limit": limit})


def failures_by_hour(conn: Connection, hours: int = 24) -> pd.DataFrame:
    """Failed runs of the last `hours`: one row an hour (index: its beginning), one column a kind, counts.

    Hours without failures are rows of zeros; without any failure there are no columns.
    """
    counts = read_frame(conn, "count_failures_by_hour", {"hours": hours})
    table = counts.dropna(subset=["kind"]).pivot_table(
        index="hour", columns="kind", values="failed", aggfunc="sum", fill_value=0
    )
    every_hour = pd.DatetimeIndex(counts["hour"].unique(), name="hour")
    return table.reindex(every_hour, fill_value=0).astype("int64")


def kinds_without_handler(conn: Connection, kinds: Iterable[str], hours: int = 24) -> pd.DataFrame:
    """Kinds that something wants and that are not among `kinds`.

    Columns: kind, enabled_jobs, failed_runs (within the last `hours`).
    """
    return read_frame(conn, "list_kinds_without_handler", {"hours": hours, "kinds": list(kinds)})
