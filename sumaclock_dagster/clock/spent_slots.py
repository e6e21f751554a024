"""Taking slots away by which no job fires any more, as most do soon: a task moves on to its next occurrence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from sumaclock_dagster.clock.bulk import MOST_CHANGES, Changes, NamedClockJob, change_many, read_role_and_port
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.clock.slots import SLOT_PREFIX
from sumaclock_dagster.db import Connection, connect, query
from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.system_jobs import SystemRun

# Younger ones may be wanted again at once: a job was paused for a moment, a task is being edited.
SPENT_SECONDS = 3600
EVERY_SECONDS = 600


def sweep_slots(app: Connection, clock: Clock, *, spent_seconds: float = SPENT_SECONDS) -> int:
    """Take away every slot that is older than this and by which no job fires. Returns how many. Safe at any time.

    `app` must not be in a transaction. Raises SumaclockError when pg_cron can't be reached.
    """
    spent = [row[0] for row in app.execute(query("list_spent_slots"), {"age": spent_seconds}).fetchall()]
    return remove_slots(app, clock, spent)


def remove_slots(app: Connection, clock: Clock, slots: Sequence[UUID]) -> int:
    """Take these slots away, except those by which a job fires or that somebody is placing a job on. Returns how many
    clock jobs went. Cut off half-way it leaves clock jobs that fire nothing, which a sync removes."""
    role = read_role_and_port(clock)[0] if slots else ""
    removed = 0
    for start in range(0, len(slots), MOST_CHANGES):
        with app.transaction():
            values: dict[str, Any] = {"ids": list(slots[start : start + MOST_CHANGES])}
            values["ids"] = [row[0] for row in app.execute(query("try_lock_slots"), values).fetchall()]
            # A statement of its own: it sees what the locks' former holders left.
            used = {row[0] for row in app.execute(query("list_used_slots"), values).fetchall()}
            free = [slot for slot in values["ids"] if slot not in used]
            # First the note, then the clock job: a slot that is noted fires, whatever cuts this off.
            clock.slots.forget(free)
            removed += len(_remove(clock, free, role))
    return removed


def slot_handlers(settings: Settings) -> Handlers:
    """A new registry with the system job `sweep_slots`. Connects to nothing."""
    handlers = Handlers()

    @handlers.system_job("sweep_slots", every_seconds=EVERY_SECONDS)
    def sweep(_: SystemRun) -> dict[str, int]:
        with (
            connect(settings.app_url, "sumaclock sweep") as app,
            open_clock(app, settings.cron_url, settings.clock) as clock,
        ):
            return {"removed": sweep_slots(app, clock)}

    return handlers


def _remove(clock: Clock, slots: Collection[UUID], role: str) -> Changes:
    def own(rows: list[NamedClockJob]) -> Changes:
        return Changes([row.jobid for row in rows if (row.database, row.username) == (clock.database_name, role)])

    return change_many(clock, slots, own, SLOT_PREFIX)
