"""How the queues of one-off commands are doing, role by role. All times are UTC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from psycopg.rows import class_row

from sumaclock_dagster.db import Connection, query

# As long as schedule_once itself gives a silent clock. A pg_cron 1.4 that has just started needs one of them.
SILENT = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class RoleQueue:
    """One role's queue. looked_at: when one of its runners or their watcher looked last, or when they were made; None
    without runners. failed_lately: commands that failed for good within 24 hours."""

    queued_by: str
    due: int
    oldest_due_at: datetime | None
    waiting: int
    running: int
    runners: int
    looked_at: datetime | None
    failed_lately: int
    seen_at: datetime

    @property
    def is_silent(self) -> bool:
        """Whether commands are due and nobody looks."""
        oldest = self.oldest_due_at
        if oldest is None or oldest > self.seen_at - SILENT:
            return False
        looked = self.looked_at is not None and self.looked_at > self.seen_at - SILENT
        # A watcher that looks says that the clock fires, not that there is a runner for what waits.
        return not looked or (self.runners > self.running and oldest < self.seen_at - 2 * SILENT)


def queues_by_role(conn: Connection) -> list[RoleQueue]:
    """One for each role that has queued, or has runners. For the app role and the owner role."""
    with conn.cursor(row_factory=class_row(RoleQueue)) as cursor:
        return cursor.execute(query("count_commands_by_role")).fetchall()


def silent_roles(queues: Sequence[RoleQueue]) -> list[str]:
    return [queue.queued_by for queue in queues if queue.is_silent]


def failed_lately(queues: Sequence[RoleQueue]) -> int:
    return sum(queue.failed_lately for queue in queues)
