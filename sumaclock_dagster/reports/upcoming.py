"""When tasks are going to fire: the next firings one by one, and how many there are in each hour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any

import pandas as pd
from psycopg.rows import dict_row

from sumaclock_dagster.calendar import LocalSchedule, occurrences
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.launches.target import target_in_words
from sumaclock_dagster.model import SumaclockError

DAYS = 7
TASKS_READ = 100
# What the calendar reckons for one picture takes seconds, not minutes.
SCHEDULES_READ = 2_000
OCCURRENCES_RECKONED = 100_000
COLUMNS = [
    "occurrence",
    "local",
    "timezone",
    "title",
    "kind",
    "target",
    "organization_id",
    "user_id",
    "change",
    "task_id",
]


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is due within `hours` after `start` (aware, UTC).

    tasks: label and occurrences of each of the tasks that fire first. per_bar: firings of all tasks (index: beginning
    of the bar, UTC). complete: False where there are more firings than were reckoned.
    """

    start: datetime
    hours: int
    bar_hours: int
    tasks: list[tuple[str, list[datetime]]]
    per_bar: pd.Series[int]
    complete: bool


def next_firings(conn: Connection, limit: int = 100) -> pd.DataFrame:
    """The next `limit` firings of active tasks, in order; those that are late stand first.

    Columns: occurrence (UTC), local (ISO 8601 with offset, in the task's zone), timezone, title, kind, target (the
    Dagster job or assets of kind dagster, or ""), organization_id, user_id, change (what a clock change does to it, or
    ""), task_id. Of each task up to ten are known.
    """
    tasks = _next_tasks(conn)
    lines = [
        {
            "occurrence": pd.Timestamp(line["at"]),
            "local": line["local"],
            "timezone": task["timezone"],
            "title": task["title"],
            "kind": task["kind"],
            "target": target_in_words(task["target"]) if task["target"] else "",
            "organization_id": task["organization_id"],
            "user_id": task["user_id"],
            "change": line["change"] or "",
            "task_id": task["task_id"],
        }
        for task in tasks
        for line in task["upcoming"]
    ]
    return pd.DataFrame(lines, columns=COLUMNS).sort_values("occurrence", kind="stable", ignore_index=True)[:limit]


def timeline(conn: Connection, hours: int, bar_hours: int, tasks_shown: int = 10) -> Timeline:
    """What is due within `hours`, counted in bars of `bar_hours`."""
    start: datetime = conn.execute(query("read_time")).fetchall()[0][0]
    end = start + timedelta(hours=hours)
    tasks = [task for task in _next_tasks(conn) if task["next_run_at"] < end][:tasks_shown]
    shown = [(_label(task), list(islice(_due(task, start, end), OCCURRENCES_RECKONED))) for task in tasks]
    first_bar = start.replace(minute=0, second=0, microsecond=0)
    first_bar -= timedelta(hours=first_bar.hour % bar_hours)
    bars = pd.date_range(first_bar, end, freq=f"{bar_hours}h", name="bar")
    counts, complete = _count(conn, start, end, bars, timedelta(hours=bar_hours))
    return Timeline(start, hours, bar_hours, shown, pd.Series(counts, index=bars, dtype="int64"), complete)


def tasks_by_status(conn: Connection) -> dict[str, int]:
    """How many tasks there are with each status, deleted ones aside."""
    return dict(conn.execute(query("count_tasks_by_status")).fetchall())


def _next_tasks(conn: Connection) -> list[dict[str, Any]]:
    return _rows(conn, "list_next_tasks", {"limit": TASKS_READ})


def _count(
    conn: Connection, start: datetime, end: datetime, bars: pd.DatetimeIndex, width: timedelta
) -> tuple[list[int], bool]:
    schedules = _rows(conn, "count_tasks_by_schedule", {"days": DAYS, "limit": SCHEDULES_READ})
    counts = [0] * len(bars)
    left = OCCURRENCES_RECKONED
    for schedule in schedules:
        for moment in islice(_due(schedule, start, end), left):
            counts[(moment - bars[0].to_pydatetime()) // width] += schedule["tasks"]
            left -= 1
    return counts, left > 0 and len(schedules) < SCHEDULES_READ


def _rows(conn: Connection, name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    # Not by way of pandas, which makes another kind of nothing out of null.
    return conn.cursor(row_factory=dict_row).execute(query(name), values).fetchall()


def _due(of: dict[str, Any], start: datetime, end: datetime) -> Iterator[datetime]:
    """The occurrences of a task or of a schedule that several tasks have; what is late is due at once."""
    schedule = LocalSchedule(of["cron"], of["instant"], of["timezone"])
    if of["next_run_at"] <= start:
        yield start
    try:
        yield from takewhile(lambda moment: moment < end, occurrences(schedule, start))
    except SumaclockError:
        # Zone data changed under it; its next firing will say so.
        return


def _label(task: dict[str, Any]) -> str:
    return f"{task['title'] or task['kind']} ({task['organization_id']})"
