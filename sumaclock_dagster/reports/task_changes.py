"""Whether the reports of tasks are worth making again."""

from __future__ import annotations

from dataclasses import dataclass

from sumaclock_dagster.db import Connection, query

AGAIN_AFTER_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class TasksSeen:
    """tasks: how many there are. changed: when the last of them was changed by somebody. newest_run: id of the newest
    task run, 0 for none. seen_at: seconds since the epoch, by the database's clock."""

    tasks: int
    changed: str
    newest_run: int
    seen_at: float


def see_tasks(conn: Connection) -> TasksSeen:
    """What reports made now would be about."""
    return TasksSeen(*conn.execute(query("sum_up_tasks")).fetchall()[0])


def tasks_worth_reporting(now: TasksSeen, reported: TasksSeen | None) -> bool:
    """At once when there are tasks for the first time; after that once in half an hour, and only if something has
    happened."""
    if reported is None:
        return now.tasks > 0
    changed = (now.tasks, now.changed, now.newest_run) != (reported.tasks, reported.changed, reported.newest_run)
    return changed and now.seen_at - reported.seen_at >= AGAIN_AFTER_SECONDS
