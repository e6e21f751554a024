"""How clock and queue are doing, in numbers and tables. All times are UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import pandas as pd
from psycopg.rows import class_row

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.raw_schedule import previous_utc
from sumaclock_dagster.reports.frames import read_frame

DAYS = 7
# A firing may take a minute and a half when ten thousand are due at once.
GRACE_SECONDS = 120
PENDING_SECONDS = 60
LATE_TASK_SECONDS = 300
# As for the doctor: from here on a transaction holds back vacuum noticeably.
OLD_TRANSACTION_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Pulse:
    """One look at the queue.

    last_firing: the newest minute that the clock fired in, None for none within the retention. pending: due runs that
    nobody has claimed; the oldest has waited for oldest_pending_seconds. late_tasks: active tasks whose occurrence
    passed more than LATE_TASK_SECONDS ago, the worst of them latest_task_seconds. dead_rows: of cron_runs, which vacuum
    has not cleaned yet.
    """

    seen_at: datetime
    last_firing: datetime | None
    pending: int
    oldest_pending_seconds: float | None
    live_workers: int
    late_tasks: int
    latest_task_seconds: float | None
    dead_rows: int


@dataclass(frozen=True, slots=True)
class OldestTransaction:
    """The open transaction in the cluster that holds back vacuum most, and whose it is."""

    seconds: float
    who: str


@dataclass(frozen=True, slots=True)
class ClockLife:
    """launcher: whether pg_cron's process is there. expected: the newest minute in which the clock should have fired,
    None where nothing was due since the server started. last_firing: as in Pulse."""

    launcher: bool
    expected: datetime | None
    last_firing: datetime | None

    @property
    def is_alive(self) -> bool:
        fired = self.expected is None or (self.last_firing is not None and self.last_firing >= self.expected)
        return self.launcher and fired


def feel_pulse(conn: Connection, retention_days: int) -> Pulse:
    """Look at the queue now."""
    with conn.cursor(row_factory=class_row(Pulse)) as cursor:
        values = {"days": retention_days, "late": LATE_TASK_SECONDS}
        return cursor.execute(query("sum_up_clock_health"), values).fetchall()[0]


def oldest_transaction(conn: Connection) -> OldestTransaction | None:
    """None when no transaction holds back vacuum."""
    row = conn.execute(query("find_oldest_transaction")).fetchone()
    return None if row is None else OldestTransaction(*row)


def clock_life(conn: Connection, pulse: Pulse, retention_days: int) -> ClockLife:
    """Judge the clock by its newest firing: the schedules of enabled jobs and the waiting tasks say when it should have
    been."""
    due_before = pulse.seen_at - timedelta(seconds=GRACE_SECONDS)
    known_since = pulse.seen_at - timedelta(days=retention_days)
    rows = conn.execute(query("list_expected_schedules"), {"grace": GRACE_SECONDS}).fetchall()
    minutes = [minute for minute in (_expected(schedule, since, due_before) for schedule, since in rows) if minute]
    launcher = conn.execute(query("find_launcher")).fetchone() is not None
    newest = max(minutes, default=None)
    return ClockLife(launcher, newest if newest and newest > known_since else None, pulse.last_firing)


def lateness_by_hour(conn: Connection, hours: int = 24) -> pd.DataFrame:
    """One row an hour (column `hour`: its beginning) with the number of firings that have begun, and their lateness
    p50, p95 and p99 in seconds (NaN for an hour without any)."""
    table = read_frame(conn, "list_lateness_by_hour", {"hours": hours})
    return table.astype(dict.fromkeys(("p50", "p95", "p99"), "float64"))


def firings_by_outcome(conn: Connection, days: int = DAYS) -> pd.DataFrame:
    """Counts of firings in bars of six hours (index: their beginning): done, failed, skipped, unfinished."""
    return read_frame(conn, "count_firings_by_outcome", {"days": days}).set_index("bar").astype("int64")


def clock_failures(cron: Connection, database: str, hours: int = 24) -> pd.DataFrame:
    """Firings into `database` that pg_cron itself noted as failed. `cron`: a connection to pg_cron's database.

    Columns: message (first line), firings, newest (NaT where pg_cron noted no time).
    """
    return read_frame(cron, "list_clock_failures", {"database": database, "hours": hours})


def _expected(schedule: str | None, since: datetime, due_before: datetime) -> datetime | None:
    """The newest minute before `due_before` that is meant, unless it lies before `since`."""
    if schedule is None:
        return since
    # "N seconds" fires all the time.
    minute = previous_utc(schedule, due_before) or due_before - timedelta(minutes=1)
    # What is made within a minute never fires in it.
    return minute if minute > since else None
