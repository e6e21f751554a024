"""How what is found in pg_cron may differ from what is wanted, whether of a job, a slot or a system clock job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from sumaclock_dagster.clock.bulk import NamedClockJob
from sumaclock_dagster.clock.system_jobs import FoundSystemJob

NOTHING = "no clock job"


class DriftKind(StrEnum):
    MISSING = "missing"
    ORPHAN = "orphan"
    SCHEDULE = "schedule differs"
    COMMAND = "command differs"
    DISABLED = "disabled differs"
    DATABASE = "wrong database"
    USER = "wrong user"
    PLACE = "wrong host or port"


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference of one job, of one slot, or of one of the system clock jobs.

    job_id: None where it is no job's; `slot` or `system` then says whose.
    jobid: pg_cron's number, or None where there is no clock job or the difference is in the row of `cron_jobs`.
    wanted, found: both sides' values, as text.
    age_seconds: since the job or its task was changed; None without a row. A change of the last seconds may be on its
        way.
    left: why a sync leaves it alone; "" where it mends it.
    """

    job_id: UUID | None
    kind: DriftKind
    jobid: int | None
    wanted: str
    found: str
    age_seconds: float | None = None
    left: str = ""
    system: str = ""
    slot: UUID | None = None

    @property
    def subject(self) -> str:
        """The job's id, the slot, or the system clock job."""
        if self.slot is not None:
            return f"slot {self.slot}"
        return f"system {self.system}" if self.job_id is None else str(self.job_id)


@dataclass(frozen=True, slots=True)
class Ground:
    """As whom and where this database's clock jobs fire. host: "" where nobody may say. has_slots: the jobs of one
    schedule are to share a clock job."""

    database: str
    role: str
    host: str
    port: int
    has_slots: bool = False


class Whose(Protocol):
    """A job or a slot that is wanted."""

    @property
    def job_id(self) -> UUID | None: ...
    @property
    def slot(self) -> UUID | None: ...
    @property
    def age_seconds(self) -> float: ...


def by_job(rows: Sequence[NamedClockJob]) -> dict[UUID, list[NamedClockJob]]:
    found: dict[UUID, list[NamedClockJob]] = {}
    for row in rows:
        found.setdefault(row.job_id, []).append(row)
    return found


def own_row(rows: Sequence[NamedClockJob], ground: Ground) -> NamedClockJob | None:
    """The clock job that fires this job here; names are unique within a role."""
    return next((row for row in rows if row.username == ground.role and row.database == ground.database), None)


def strayed_row(rows: Sequence[NamedClockJob], ground: Ground) -> NamedClockJob | None:
    """The one that has its name and fires elsewhere."""
    return next((row for row in rows if row.username == ground.role and row.database != ground.database), None)


def differences(
    own: NamedClockJob | FoundSystemJob, schedule: str, command: str, ground: Ground
) -> list[tuple[DriftKind, str, str]]:
    """(kind, wanted, found) of what a clock job should be and is not."""
    found = []
    if own.schedule != schedule:
        found.append((DriftKind.SCHEDULE, schedule, own.schedule))
    if own.command != command:
        found.append((DriftKind.COMMAND, command, own.command))
    if not own.active:
        found.append((DriftKind.DISABLED, "active", "inactive"))
    if is_elsewhere(own, ground):
        found.append((DriftKind.PLACE, place(ground.host or own.host, ground.port), place(own.host, own.port)))
    return found


def others(rows: Sequence[NamedClockJob], ground: Ground, whose: Whose) -> list[Drift]:
    """What has its name and stands for another database or role."""
    found = []
    for row in rows:
        if row.username == ground.role and row.database != ground.database:
            left = "" if not row.database_exists else f"Database '{row.database}' exists, so it may be its own."
            drift = (DriftKind.DATABASE, row.jobid, ground.database, row.database)
            found.append(Drift(whose.job_id, *drift, whose.age_seconds, left, slot=whose.slot))
        elif row.username != ground.role and row.database == ground.database:
            left = f"Only role '{row.username}' or a superuser may remove it: `select cron.unschedule({row.jobid})`."
            drift = (DriftKind.USER, row.jobid, ground.role, row.username)
            found.append(Drift(whose.job_id, *drift, whose.age_seconds, left, slot=whose.slot))
    return found


def is_made_anew(own: NamedClockJob | FoundSystemJob, ground: Ground) -> bool:
    """Scheduling an existing name changes neither whether it is active nor where it fires."""
    return not own.active or is_elsewhere(own, ground)


def is_elsewhere(own: NamedClockJob | FoundSystemJob, ground: Ground) -> bool:
    return own.port != ground.port or bool(ground.host and own.host != ground.host)


def place(host: str, port: int) -> str:
    return f"{host} (port {port})"
