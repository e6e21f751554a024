"""Tasks and task runs as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID


class TaskStatus(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"


class TaskTrigger(StrEnum):
    CLOCK = "clock"
    HEARTBEAT = "heartbeat"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Task:
    """A row of `ai_tasks`. Exactly one of `cron` (on the wall clock of `timezone`) and `instant` is set. Times are
    aware, in UTC. `next_run_at` is None in an active task that a worker is about to place."""

    id: UUID
    organization_id: str
    user_id: str
    kind: str
    title: str
    payload: Any
    cron: str | None
    instant: datetime | None
    timezone: str
    status: TaskStatus
    status_reason: str | None
    next_run_at: datetime | None
    last_scheduled_for: datetime | None
    cron_job_id: UUID
    deleted_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class TaskRunRow:
    """A row of `ai_task_runs`. `status`: done, failed, skipped, or running while a Dagster run executes it. `error`:
    why it failed or was skipped. Times are aware; `finished_at` is None while it is running."""

    id: int
    task_id: UUID
    scheduled_for: datetime
    trigger: TaskTrigger
    status: str
    result: Any
    error: str | None
    cron_run_id: int
    idempotency_key: str
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Upcoming:
    """One occurrence of a preview. `occurrence`: aware, in UTC. `local`: ISO 8601 with the offset then in force.
    `change`: what a clock change does to it, or None."""

    occurrence: datetime
    local: str
    change: str | None


def idempotency_key(task_id: UUID, scheduled_for: datetime) -> str:
    """`ai_task_run:<task>:<instant>`: ISO 8601 in UTC, to the minute, or to the microsecond where it is on none."""
    at = scheduled_for.astimezone(UTC)
    spec = "microseconds" if at.second or at.microsecond else "minutes"
    return f"ai_task_run:{task_id}:{at.replace(tzinfo=None).isoformat(timespec=spec)}Z"
