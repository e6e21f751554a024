"""Drift: any difference between `cron_jobs` (and the tasks behind it) and pg_cron. Defined here, and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from sumaclock_dagster.arrays import text_array
from sumaclock_dagster.calendar import pg_cron_for
from sumaclock_dagster.clock.bulk import NamedClockJob, list_named, read_role_and_port
from sumaclock_dagster.clock.command import firing_command, is_careful
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.clock.system_jobs import list_system, system_clock_jobs
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.reconcile.differences import (
    NOTHING,
    Drift,
    DriftKind,
    Ground,
    by_job,
    differences,
    others,
    own_row,
    strayed_row,
)
from sumaclock_dagster.reconcile.slots import WantedSlot, find_slot_drift, slots_of
from sumaclock_dagster.reconcile.system import compare_system

__all__ = [
    "Drift",
    "DriftKind",
    "Ground",
    "Wanted",
    "compare",
    "count_by_kind",
    "find_drift",
    "read_ground",
    "read_wanted",
]

A_SLOT = "a slot"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job's rows say. next_run_at: of its task. fires: whether there should be a clock job. in_slot: the slot of
    its schedule fires it, whichever way is wanted."""

    job_id: UUID
    schedule: str
    overlap: str
    enabled: bool
    is_task: bool
    fires: bool
    next_run_at: datetime | None
    age_seconds: float
    in_slot: bool = False
    slot: None = None

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
    found += find_slot_drift(app, clock, wanted_slots(wanted.values(), ground), ground)
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
    host, port = str(settings.get("cron.host") or ""), read_role_and_port(clock)[1]
    return Ground(clock.database_name, str(row[0]), host, port, clock.has_slots)


def wanted_slots(jobs: Iterable[Wanted], ground: Ground) -> dict[UUID, WantedSlot]:
    """The slots that these jobs are to fire by."""
    if not ground.has_slots:
        return {}
    firing = (job for job in jobs if job.fires and not job.is_unknown)
    return slots_of((job.clock_schedule, job.age_seconds) for job in firing)


def read_wanted(app: Connection, ids: Collection[UUID] | None = None) -> dict[UUID, Wanted]:
    """By job id: of these jobs, or of all."""
    cursor = app.cursor(row_factory=class_row(Wanted))
    values = {"ids": None if ids is None else text_array(map(str, ids))}
    return {job.job_id: job for job in cursor.execute(query("list_wanted_clock_jobs"), values, prepare=False)}


def compare(job_id: UUID, job: Wanted | None, rows: Sequence[NamedClockJob], ground: Ground) -> list[Drift]:
    """The differences of one job. `rows`: the clock jobs of its name. Without a row in `cron_jobs` they count only
    where database and role are ours, too: a neighbour may choose names as it likes."""
    own = own_row(rows, ground)
    if job is None:
        return [Drift(job_id, DriftKind.ORPHAN, own.jobid, NOTHING, own.schedule)] if own else []
    found = [] if job.is_unknown else [*_row_drift(job), *_clock_drift(job, own, rows, ground)]
    return found + others(rows, ground, job)


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
    if ground.has_slots:
        return _slot_drift(job, own)
    if job.in_slot:
        return [Drift(job.job_id, DriftKind.MISSING, None, job.clock_schedule, A_SLOT, job.age_seconds)]
    if own is None and strayed is None:
        return [Drift(job.job_id, DriftKind.MISSING, None, job.clock_schedule, NOTHING, job.age_seconds)]
    if own is None:
        return []

    command = firing_command(job.job_id, careful=job.is_careful)
    return [
        Drift(job.job_id, kind, own.jobid, wanted, found, job.age_seconds)
        for kind, wanted, found in differences(own, job.clock_schedule, command, ground)
    ]


def _slot_drift(job: Wanted, own: NamedClockJob | None) -> list[Drift]:
    """Whether the slot fires it, and nothing else does. Whether the slot is there is the slot's own matter."""
    if own is not None:
        return [Drift(job.job_id, DriftKind.ORPHAN, own.jobid, A_SLOT, own.schedule, job.age_seconds)]
    if not job.in_slot:
        wanted = f"{job.clock_schedule} (by a slot)"
        return [Drift(job.job_id, DriftKind.MISSING, None, wanted, NOTHING, job.age_seconds)]
    return []
