"""Drift: any difference between `cron_jobs` (and the tasks behind it) and pg_cron. Defined here, and nowhere else."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from psycopg.rows import class_row

from sumaclock_dagster.calendar import pg_cron_for
from sumaclock_dagster.clock.bulk import NamedClockJob, list_named, read_role_and_port
from sumaclock_dagster.clock.command import firing_command, is_careful
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.clock.system_jobs import FoundSystemJob, SystemClockJob, list_system, system_clock_jobs
from sumaclock_dagster.db import Connection, query

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
    """One difference of one job, or of one of the system clock jobs.

    job_id: None for a system clock job; `system` then says which.
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

    @property
    def subject(self) -> str:
        """The job's id, or the system clock job."""
        return f"system {self.system}" if self.job_id is None else str(self.job_id)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job's rows say. next_run_at: of its task. fires: whether there should be a clock job."""

    job_id: UUID
    schedule: str
    overlap: str
    enabled: bool
    is_task: bool
    fires: bool
    next_run_at: datetime | None
    age_seconds: float

    @property
    def is_unknown(self) -> bool:
        """A worker is about to place the task, so nobody knows yet."""
        return self.is_task and self.fires and self.next_run_at is None

    @property
    def clock_schedule(self) -> str:
        return pg_cron_for(self.next_run_at) if self.is_task and self.next_run_at else self.schedule

    @property
    def is_careful(self) -> bool:
        """Which of the two commands its clock job should run."""
        return not self.is_task and is_careful(self.schedule, self.overlap)


@dataclass(frozen=True, slots=True)
class Ground:
    """As whom and where this database's clock jobs fire. host: "" where nobody may say."""

    database: str
    role: str
    host: str
    port: int


def find_drift(app: Connection, clock: Clock) -> list[Drift]:
    """Every difference now, by one read of each side. What changes between the two reads may show as one.

    Raises SumaclockError when pg_cron can't be reached.
    """
    ground = read_ground(app, clock)
    # In this order a job that is being created shows as an orphan, which a sync looks at again under the job's lock.
    wanted = read_wanted(app)
    rows = by_job(list_named(clock))
    found = [drift for job in wanted.values() for drift in compare(job.job_id, job, rows.pop(job.job_id, ()), ground)]
    found += [drift for job_id, named in rows.items() for drift in compare(job_id, None, named, ground)]
    system = list_system(clock)
    return found + [drift for job in system_clock_jobs() for drift in compare_system(job, system, ground)]


def count_by_kind(drifts: Sequence[Drift]) -> dict[str, int]:
    """How many of each kind, in the order of the definition; kinds without any are left out."""
    counted = Counter(drift.kind for drift in drifts)
    return {kind.value: counted[kind] for kind in DriftKind if counted[kind]}


def read_ground(app: Connection, clock: Clock) -> Ground:
    row = app.execute(query("read_current_role")).fetchone()
    assert row is not None  # noqa: S101  (a select without from has one row)
    settings = dict(app.execute(query("read_clock_settings")).fetchall())
    return Ground(clock.database_name, str(row[0]), str(settings.get("cron.host") or ""), read_role_and_port(clock)[1])


def read_wanted(app: Connection, ids: Collection[UUID] | None = None) -> dict[UUID, Wanted]:
    """By job id: of these jobs, or of all."""
    cursor = app.cursor(row_factory=class_row(Wanted))
    values = {"ids": None if ids is None else list(ids)}
    return {job.job_id: job for job in cursor.execute(query("list_wanted_clock_jobs"), values, prepare=False)}


def by_job(rows: Sequence[NamedClockJob]) -> dict[UUID, list[NamedClockJob]]:
    found = defaultdict[UUID, list[NamedClockJob]](list)
    for row in rows:
        found[row.job_id].append(row)
    return found


def own_row(rows: Sequence[NamedClockJob], ground: Ground) -> NamedClockJob | None:
    """The clock job that fires this job here; names are unique within a role."""
    return next((row for row in rows if row.username == ground.role and row.database == ground.database), None)


def strayed_row(rows: Sequence[NamedClockJob], ground: Ground) -> NamedClockJob | None:
    """The one that has its name and fires elsewhere."""
    return next((row for row in rows if row.username == ground.role and row.database != ground.database), None)


def compare(job_id: UUID, job: Wanted | None, rows: Sequence[NamedClockJob], ground: Ground) -> list[Drift]:
    """The differences of one job. `rows`: the clock jobs of its name. Without a row in `cron_jobs` they count only
    where database and role are ours, too: a neighbour may choose names as it likes."""
    own = own_row(rows, ground)
    if job is None:
        return [Drift(job_id, DriftKind.ORPHAN, own.jobid, NOTHING, own.schedule)] if own else []
    found = [] if job.is_unknown else [*_row_drift(job), *_clock_drift(job, own, rows, ground)]
    return found + _others(job, rows, ground)


def _row_drift(job: Wanted) -> list[Drift]:
    """Where the row of a task's job is not what the task wants."""
    found = []
    if job.is_task and job.fires and job.schedule != job.clock_schedule:
        row = f"{job.schedule} (cron_jobs)"
        found.append(Drift(job.job_id, DriftKind.SCHEDULE, None, job.clock_schedule, row, job.age_seconds))
    if job.is_task and job.enabled != job.fires:
        wanted, row = ("enabled", "disabled (cron_jobs)") if job.fires else ("disabled", "enabled (cron_jobs)")
        found.append(Drift(job.job_id, DriftKind.DISABLED, None, wanted, row, job.age_seconds))
    return found


def _clock_drift(job: Wanted, own: NamedClockJob | None, rows: Sequence[NamedClockJob], ground: Ground) -> list[Drift]:
    strayed = strayed_row(rows, ground)
    if not job.fires:
        if own is None or not own.active:
            return []
        return [Drift(job.job_id, DriftKind.DISABLED, own.jobid, NOTHING, own.schedule, job.age_seconds)]
    if own is None and strayed is None:
        return [Drift(job.job_id, DriftKind.MISSING, None, job.clock_schedule, NOTHING, job.age_seconds)]
    if own is None:
        return []

    command = firing_command(job.job_id, careful=job.is_careful)
    return [
        Drift(job.job_id, kind, own.jobid, wanted, found, job.age_seconds)
        for kind, wanted, found in _differences(own, job.clock_schedule, command, ground)
    ]


def compare_system(job: SystemClockJob, rows: Sequence[FoundSystemJob], ground: Ground) -> list[Drift]:
    """The differences of one system clock job. `rows`: of all that are named like one."""
    own = system_row(job, rows, ground)
    if own is None:
        return [Drift(None, DriftKind.MISSING, None, job.schedule, NOTHING, system=job.what)]
    if not own.is_in_cron_database:
        left = f"Database '{own.database}' exists, so it may be its own." if own.database_exists else ""
        wanted = "the cron database"
        return [Drift(None, DriftKind.DATABASE, own.jobid, wanted, own.database, left=left, system=job.what)]
    return [
        Drift(None, kind, own.jobid, wanted, found, system=job.what)
        for kind, wanted, found in _differences(own, job.schedule, job.command, ground)
    ]


def system_row(job: SystemClockJob, rows: Sequence[FoundSystemJob], ground: Ground) -> FoundSystemJob | None:
    """The row that stands for it, as the app role."""
    return next((row for row in rows if row.what == job.what and row.username == ground.role), None)


def _differences(
    own: NamedClockJob | FoundSystemJob, schedule: str, command: str, ground: Ground
) -> list[tuple[DriftKind, str, str]]:
    """(kind, wanted, found) of what a clock job should be and is not."""
    values = [
        (DriftKind.SCHEDULE, schedule, own.schedule),
        (DriftKind.COMMAND, command, own.command),
        (DriftKind.DISABLED, "active", "active" if own.active else "inactive"),
        (DriftKind.PLACE, place(ground.host or own.host, ground.port), place(own.host, own.port)),
    ]
    return [(kind, wanted, found) for kind, wanted, found in values if wanted != found]


def _others(job: Wanted, rows: Sequence[NamedClockJob], ground: Ground) -> list[Drift]:
    """What has this job's name and stands for another database or role."""
    found = []
    for row in rows:
        if row.username == ground.role and row.database != ground.database:
            left = "" if not row.database_exists else f"Database '{row.database}' exists, so it may be its own."
            values = (ground.database, row.database, job.age_seconds, left)
            found.append(Drift(job.job_id, DriftKind.DATABASE, row.jobid, *values))
        elif row.username != ground.role and row.database == ground.database:
            left = f"Only role '{row.username}' or a superuser may remove it: `select cron.unschedule({row.jobid})`."
            values = (ground.role, row.username, job.age_seconds, left)
            found.append(Drift(job.job_id, DriftKind.USER, row.jobid, *values))
    return found


def place(host: str, port: int) -> str:
    return f"{host} (port {port})"
