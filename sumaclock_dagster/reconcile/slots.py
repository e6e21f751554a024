"""Drift of slots, and placing those that are missing or wrong. Which jobs fire by a slot is each job's own matter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sumaclock_dagster.clock.bulk import Changes, NamedClockJob, change_many, list_named
from sumaclock_dagster.clock.command import slot_firing_command
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.clock.slots import SLOT_PREFIX, slot_id
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.reconcile.differences import (
    NOTHING,
    Drift,
    DriftKind,
    Ground,
    by_job,
    differences,
    is_made_anew,
    others,
    own_row,
    strayed_row,
)


@dataclass(frozen=True, slots=True)
class WantedSlot:
    """age_seconds: since the last change of the job, or task, that was changed last."""

    slot: UUID
    schedule: str
    age_seconds: float
    job_id: None = None


def slots_of(schedules: Iterable[tuple[str, float]]) -> dict[UUID, WantedSlot]:
    """By slot: those of raw schedules with the ages of their jobs."""
    ages: dict[str, float] = {}
    for schedule, age in schedules:
        ages[schedule] = min(age, ages.get(schedule, age))
    found = [WantedSlot(slot_id(schedule), schedule, age) for schedule, age in ages.items()]
    return {wanted.slot: wanted for wanted in found}


def find_slot_drift(app: Connection, clock: Clock, wanted: dict[UUID, WantedSlot], ground: Ground) -> list[Drift]:
    """Every difference between the wanted slots and pg_cron. A slot by which no job fires any more is none as long as
    `clock_slots` knows it: the system job sweep_slots takes it away."""
    noted = {row[0] for row in app.execute(query("list_slots"), {"ids": None}).fetchall()}
    rows = by_job(list_named(clock, prefix=SLOT_PREFIX))
    found = [
        drift
        for slot, one in wanted.items()
        for drift in compare_slot(one, rows.get(slot, ()), ground, is_noted=slot in noted)
    ]
    for slot, named in rows.items():
        own = own_row(named, ground)
        if own is not None and slot not in wanted and not (ground.has_slots and slot in noted):
            found.append(Drift(None, DriftKind.ORPHAN, own.jobid, NOTHING, own.schedule, slot=slot))
    return found


def compare_slot(wanted: WantedSlot, rows: Sequence[NamedClockJob], ground: Ground, *, is_noted: bool) -> list[Drift]:
    """The differences of one slot that should fire. `rows`: the clock jobs of its name."""
    own, age = own_row(rows, ground), wanted.age_seconds
    found = others(rows, ground, wanted)
    if own is None and strayed_row(rows, ground) is None:
        found.append(Drift(None, DriftKind.MISSING, None, wanted.schedule, NOTHING, age, slot=wanted.slot))
    elif own is not None:
        if not is_noted:
            said = f"{own.schedule} (not in clock_slots)"
            found.append(Drift(None, DriftKind.MISSING, own.jobid, wanted.schedule, said, age, slot=wanted.slot))
        found += [
            Drift(None, kind, own.jobid, should, is_, age, slot=wanted.slot)
            for kind, should, is_ in differences(own, wanted.schedule, slot_firing_command(wanted.slot), ground)
        ]
    return found


def place_slots(app: Connection, clock: Clock, wanted: Sequence[WantedSlot], ground: Ground) -> Changes:
    """See that these slots fire, first in pg_cron and then in `clock_slots`; at most 500. Those that somebody is taking
    away just now are left out. Raises SumaclockError."""
    with app.transaction():
        ids = {"ids": [one.slot for one in wanted]}
        held = {row[0] for row in app.execute(query("try_hold_slots"), ids).fetchall()}
        some = [one for one in wanted if one.slot in held]
        right: dict[UUID, str] = {}

        def decide(named: list[NamedClockJob]) -> Changes:
            changes, rows = Changes(), by_job(named)
            right.clear()
            for one in some:
                if _decide(changes, one, rows.get(one.slot, []), ground):
                    right[one.slot] = one.schedule
            return changes

        changes = change_many(clock, held, decide, SLOT_PREFIX)
        clock.slots.note(right)
    return changes


def hold_slots(app: Connection, slots: Iterable[UUID]) -> set[UUID]:
    """Those of these slots that are in place, and that stay until the transaction on `app` ends. Waits for nobody."""
    values = {"ids": list(slots)}
    values["ids"] = [row[0] for row in app.execute(query("try_hold_slots"), values).fetchall()]
    return {row[0] for row in app.execute(query("list_slots"), values).fetchall()}


def _decide(changes: Changes, wanted: WantedSlot, rows: list[NamedClockJob], ground: Ground) -> bool:
    """Whether the slot fires after these changes."""
    own, strayed = own_row(rows, ground), strayed_row(rows, ground)
    if strayed is not None:
        if strayed.database_exists:
            return False
        changes.removed.append(strayed.jobid)
    if own is not None and not differences(own, wanted.schedule, slot_firing_command(wanted.slot), ground):
        return True
    if own is not None and is_made_anew(own, ground):
        changes.removed.append(own.jobid)
    changes.placed.append((wanted.slot, wanted.schedule, True))
    return True
