"""Repair: what was left half-way is finished, hourly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sumaclock_dagster.calendar import zone_data_version
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.reconcile.drift import Drift, find_drift
from sumaclock_dagster.reconcile.sync import SyncReport, sync

# What changed less than this ago may be on its way.
YOUNG_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Damage:
    """What a repair would mend.

    drift: differences of jobs that nobody changed within the last minute and that a sync mends.
    unplaced: active tasks that wait for over a minute and that no run will place.
    other_zone_data: active tasks that were placed by another version of the zone data.
    """

    drift: list[Drift]
    unplaced: int
    other_zone_data: int

    @property
    def is_none(self) -> bool:
        return not (self.drift or self.unplaced or self.other_zone_data)


@dataclass(frozen=True, slots=True)
class Repaired:
    """sync: what was done about drift. unplaced, other_zone_data: tasks that got a run which places them."""

    sync: SyncReport
    unplaced: int
    other_zone_data: int


def look_for_damage(app: Connection, clock: Clock) -> Damage:
    """What a repair would mend. Changes nothing. Raises SumaclockError when pg_cron can't be reached."""
    drift = [found for found in find_drift(app, clock) if not found.left and not is_young(found)]
    unplaced, other_zone_data = _zone_query(app, "count_unplaced_tasks")
    return Damage(drift, unplaced, other_zone_data)


def repair(app: Connection, clock: Clock, *, say: Callable[[str], None] = lambda _: None) -> Repaired:
    """Mend drift, and let workers place the tasks that none is about to place. Safe at any time, like a sync."""
    report = sync(app, clock, say=say)
    unplaced, other_zone_data = _zone_query(app, "request_unplaced_tasks")
    return Repaired(report, unplaced, other_zone_data)


def is_young(drift: Drift) -> bool:
    return drift.age_seconds is not None and drift.age_seconds < YOUNG_SECONDS


def _zone_query(app: Connection, name: str) -> tuple[int, int]:
    row = app.execute(query(name), {"zone_data": zone_data_version()}).fetchone()
    assert row is not None  # noqa: S101  (a count has one row)
    return int(row[0]), int(row[1])
