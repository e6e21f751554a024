"""Drift of the system clock jobs, and mending it."""

from __future__ import annotations

from collections.abc import Sequence

from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.clock.system_jobs import (
    FoundSystemJob,
    SystemChanges,
    SystemClockJob,
    change_system,
    system_clock_jobs,
)
from sumaclock_dagster.reconcile.differences import NOTHING, Drift, DriftKind, Ground, differences, is_made_anew


def compare_system(job: SystemClockJob, rows: Sequence[FoundSystemJob], ground: Ground) -> list[Drift]:
    """The differences of one system clock job. `rows`: of all that are named like one."""
    own = _row_of(job, rows, ground)
    if own is None:
        return [Drift(None, DriftKind.MISSING, None, job.schedule, NOTHING, system=job.what)]
    if not own.is_in_cron_database:
        left = f"Database '{own.database}' exists, so it may be its own." if own.database_exists else ""
        wanted = "the cron database"
        return [Drift(None, DriftKind.DATABASE, own.jobid, wanted, own.database, left=left, system=job.what)]
    return [
        Drift(None, kind, own.jobid, wanted, found, system=job.what)
        for kind, wanted, found in differences(own, job.schedule, job.command, ground)
    ]


def mend_system(clock: Clock, ground: Ground) -> SystemChanges:
    """See that each is as it should be, in one transaction. Raises SumaclockError."""

    def decide(rows: list[FoundSystemJob]) -> SystemChanges:
        changes = SystemChanges()
        for job in system_clock_jobs():
            if any(not drift.left for drift in compare_system(job, rows, ground)):
                own = _row_of(job, rows, ground)
                if own is not None and (not own.is_in_cron_database or is_made_anew(own, ground)):
                    changes.removed.append(own.jobid)
                changes.placed.append(job)
        return changes

    return change_system(clock, decide)


def _row_of(job: SystemClockJob, rows: Sequence[FoundSystemJob], ground: Ground) -> FoundSystemJob | None:
    """The row that stands for it, as the app role."""
    return next((row for row in rows if row.what == job.what and row.username == ground.role), None)
