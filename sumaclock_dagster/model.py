"""The words of the design as plain values. Standard library only: every other layer may import this one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

# How jobs are fired: by a clock job each, or by one a schedule.
ClockMode = Literal["jobs", "slots"]


class SumaclockError(Exception):
    """A refusal by rule. Its text says what is wrong, where, and what to do; it never carries a secret."""


class RunStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


class RunTrigger(StrEnum):
    CLOCK = "clock"
    MANUAL = "manual"
    CATCH_UP = "catch_up"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Job:
    """A row of `cron_jobs`. `schedule` is a raw UTC schedule; times are aware. `catch_up`: after missed firings
    "one" run for the last of them, or "none". `overlap`: whether a firing while one of the last runs is pending or
    running is written: "skip", "allow", or "auto", which skips for schedules in seconds only."""

    id: UUID
    kind: str
    organization_id: str
    user_id: str
    payload: Any
    schedule: str
    enabled: bool
    catch_up: str
    overlap: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Run:
    """A row of `cron_runs` with its job's kind and owner, as people see it. Times are aware."""

    id: int
    job_id: UUID
    kind: str
    organization_id: str
    user_id: str
    status: RunStatus
    trigger: RunTrigger
    scheduled_at: datetime
    due_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempts: int
    lost: int
    result: Any
    error: str | None
    claimed_by: int | None
    dagster_run_id: UUID | None


@dataclass(frozen=True, slots=True)
class Done:
    """The handler's work is done. `result` is anything JSON-able; returning a bare value means the same."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler could not do the work and does not want to be tried again."""

    error: str


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Try again after `seconds`. Bounded by the kind's `max_attempts`, or three where it sets none."""

    seconds: float
    reason: str = "The handler asked for another try."


@dataclass(frozen=True, slots=True)
class Skip:
    """There was nothing to do; `reason` says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Handed:
    """The run goes on in a Dagster run and is no longer this worker's: the handler has noted it in the database."""


Outcome = Done | Failed | RetryLater | Skip | Handed


@dataclass(frozen=True, slots=True)
class Policy:
    """How a kind is executed.

    max_attempts: attempts that may end in a raise, a time-out or `RetryLater`. None means 1 for raises and time-outs
        and 3 for `RetryLater`.
    backoff_seconds: delay before the second attempt; it doubles with each further one.
    backoff_max_seconds: the longest delay.
    timeout_seconds: None means no limit.
    """

    max_attempts: int | None = None
    backoff_seconds: float = 10.0
    backoff_max_seconds: float = 3600.0
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PoolState:
    """What the database sees of the workers and the queue at one moment.

    live: workers whose session lives and that will claim for a while yet.
    starting: requested workers that have not registered and are still within their start time.
    retiring: living workers that claim nothing more, or soon will not.
    due: pending runs that may be claimed now.
    oldest_due_seconds: age of the oldest of them, 0.0 where there is none.
    """

    live: int
    starting: int
    retiring: int
    due: int
    oldest_due_seconds: float


@dataclass(slots=True)
class FiringLine:
    """One executed run as reports show it. `lateness_seconds`: handler start minus the scheduled minute."""

    run_id: int
    job_id: UUID
    kind: str
    organization_id: str
    user_id: str
    scheduled_at: datetime
    lateness_seconds: float
    duration_seconds: float
    attempt: int
    outcome: str
    error: str | None


@dataclass(slots=True)
class FlushReport:
    """What a worker did since its last report.

    counts: executed runs by (kind, outcome); an outcome is a final status, or "retry",
        "handed over" (it goes on in a Dagster run) or "claim lost".
    lateness_seconds: one value an executed run, first 10,000 kept.
    firings: the first 100 executed runs; the full detail is in `cron_runs`.
    failures: the first 100 failed runs, with their errors.
    """

    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    lateness_seconds: list[float] = field(default_factory=list)
    firings: list[FiringLine] = field(default_factory=list)
    failures: list[FiringLine] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.counts.values())
