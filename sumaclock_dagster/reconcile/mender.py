"""Mending drift: batches of jobs are locked, looked at again on both sides, and only then changed.

The locks are those under which people and workers change a job. One that somebody else holds is not waited for: its
holder leaves the job right itself. A task that is settled meanwhile takes no such lock before its clock job moves, so
that move comes after this one and wins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

from sumaclock_dagster.arrays import text_array
from sumaclock_dagster.clock.bulk import MOST_CHANGES, Changes, NamedClockJob, change_many, read_role_and_port
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.clock.slots import slot_id
from sumaclock_dagster.clock.spent_slots import remove_slots
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.raw_schedule import check
from sumaclock_dagster.reconcile.differences import Drift, DriftKind, by_job, is_made_anew, own_row, strayed_row
from sumaclock_dagster.reconcile.drift import (
    Wanted,
    compare,
    read_ground,
    read_wanted,
    wanted_slots,
)
from sumaclock_dagster.reconcile.report import SyncReport
from sumaclock_dagster.reconcile.slots import hold_slots, place_slots
from sumaclock_dagster.reconcile.system import mend_system

# A clock job that is made anew takes two changes.
PART = MOST_CHANGES // 2
# Two parts are changed at once, each in a transaction of its own: most of a sync's time is pg_cron's.
BATCH = 2 * PART

Say = Callable[[str], None]


class Mender:
    """Mends jobs in batches and counts what it did in a report."""

    def __init__(self, app: Connection, clock: Clock, report: SyncReport, say: Say) -> None:
        self._app = app
        self._clock = clock
        self._other = clock.another()
        self._report = report
        self._say = say
        self._ground = read_ground(app, clock)
        self._features = clock.features()
        self._refusals: dict[str, str] = {}
        self._refused: dict[UUID | None, str] = {}
        self._settled: set[UUID | None] = set()
        role = read_role_and_port(clock)[0]
        if role != self._ground.role:
            raise SumaclockError(
                f"SUMACLOCK_CRON_DATABASE_URL logs in as '{role}' and SUMACLOCK_DATABASE_URL as '{self._ground.role}'. "
                "Clock jobs fire as the role that schedules them: let both be the app role."
            )

    def close(self) -> None:
        self._other.close()

    @property
    def changes(self) -> int:
        return self._report.placed + self._report.removed + self._report.rows

    def mend(self, drifts: Sequence[Drift]) -> bool:
        """Whether all of it is known to be right now. Otherwise only another look tells."""
        self._settled.clear()
        if any(drift.system for drift in drifts):
            self._mend_system()
        # Slots are there before the first job joins them, and until the last has left.
        self._place_slots({drift.slot for drift in drifts if drift.slot and drift.kind is not DriftKind.ORPHAN})
        ids = list(dict.fromkeys(drift.job_id for drift in drifts if drift.job_id is not None))
        for start in range(0, len(ids), BATCH):
            self._in_halves(ids[start : start + BATCH], self._mend_batch)
            done = min(start + BATCH, len(ids))
            self._say(f"{done} of {len(ids)} jobs looked at; {self.changes} changes.")
        orphans = [drift.slot for drift in drifts if drift.slot and drift.kind is DriftKind.ORPHAN]
        self._report.removed += remove_slots(self._app, self._clock, orphans)
        return all(drift.job_id in self._settled for drift in drifts)

    def explained(self, drifts: list[Drift]) -> list[Drift]:
        """With the reason why each remains, where there is one."""
        return [
            replace(drift, left=drift.left or self._refused.get(drift.slot or drift.job_id, "")) for drift in drifts
        ]

    def _mend_system(self) -> None:
        try:
            changes = mend_system(self._clock, self._ground)
        except SumaclockError as error:
            self._refused[None] = str(error)
            read_role_and_port(self._clock)
            return
        self._report.placed += len(changes.placed)
        self._report.removed += len(changes.removed)

    def _place_slots(self, slots: set[UUID]) -> None:
        if not slots:
            return
        wanted = wanted_slots(read_wanted(self._app).values(), self._ground)

        def place(some: list[UUID]) -> None:
            changes = place_slots(self._app, self._clock, [wanted[slot] for slot in some], self._ground)
            self._report.placed += len(changes.placed)
            self._report.removed += len(changes.removed)

        self._refused |= {
            slot: said for slot in slots & wanted.keys() if (said := self._refusal(wanted[slot].schedule))
        }
        good = sorted(slots & wanted.keys() - self._refused.keys())
        for start in range(0, len(good), BATCH):
            self._in_halves(good[start : start + BATCH], place)

    def _in_halves(self, ids: list[UUID], mend: Callable[[list[UUID]], None]) -> None:
        """One bad job harms itself alone: a batch that pg_cron refuses is halved until it is found."""
        try:
            mend(ids)
        except SumaclockError as error:
            if len(ids) == 1:
                self._refused[ids[0]] = str(error)
                return
            # When pg_cron is away, this raises, and so does the sync.
            read_role_and_port(self._clock)
            self._in_halves(ids[: len(ids) // 2], mend)
            self._in_halves(ids[len(ids) // 2 :], mend)

    def _mend_batch(self, ids: list[UUID]) -> None:
        with self._app.transaction():
            locked = self._lock(ids)
            # Committed before they get clock jobs of their own: no minute fires them twice.
            left = 0 if self._ground.has_slots else self._update("leave_slots", locked)
            if not left:
                self._mend_locked(locked)
        self._report.rows += left
        if left:
            self._mend_batch(ids)

    def _mend_locked(self, locked: list[UUID]) -> None:
        # A statement of its own: what it reads is as the locks' former holders left it.
        wanted = read_wanted(self._app, locked)
        slots = wanted_slots(wanted.values(), self._ground)
        held = hold_slots(self._app, slots) if slots else set()
        right: set[UUID] = set()

        def change(clock: Clock, part: list[UUID]) -> Changes:
            def decide(named: list[NamedClockJob]) -> Changes:
                changes, rows = Changes(), by_job(named)
                for job_id in part:
                    if self._decide_one(changes, job_id, wanted.get(job_id), rows.get(job_id, []), held):
                        right.add(job_id)
                    else:
                        right.discard(job_id)
                return changes

            return change_many(clock, part, decide)

        changed = self._at_once(change, locked)
        off, mended = self._mend_rows([job for job in wanted.values() if job.is_task and not job.is_unknown])
        # The time from which the slot counts comes after their own clock jobs are gone: no minute fires them twice.
        joining = [job.job_id for job in wanted.values() if held and not job.in_slot and _fires_by(job, held)]
        joined = self._update("join_slots", joining) if joining else 0
        self._report.placed += sum(len(changes.placed) for changes in changed)
        self._report.removed += sum(len(changes.removed) for changes in changed)
        self._report.rows += len(mended) + joined
        self._settled |= right - (off - mended)

    def _at_once(self, change: Callable[[Clock, list[UUID]], Changes], ids: list[UUID]) -> list[Changes]:
        parts = [ids[start : start + PART] for start in range(0, len(ids), PART)]
        if len(parts) < 2:
            return [change(self._clock, part) for part in parts]
        with ThreadPoolExecutor(len(parts)) as pool:
            return list(pool.map(change, (self._clock, self._second_clock()), parts))

    def _second_clock(self) -> Clock:
        """Where the server allows no second connection, the first, whose callers take turns."""
        try:
            read_role_and_port(self._other)
        except SumaclockError:
            return self._clock
        return self._other

    def _lock(self, ids: list[UUID]) -> list[UUID]:
        values = {"ids": text_array(map(str, ids))}
        return [row[0] for row in self._app.execute(query("try_lock_jobs"), values).fetchall()]

    def _update(self, name: str, ids: list[UUID]) -> int:
        return self._app.execute(query(name), {"ids": ids}).rowcount

    def _decide_one(
        self, changes: Changes, job_id: UUID, job: Wanted | None, rows: list[NamedClockJob], held: Collection[UUID]
    ) -> bool:
        """Whether its clock job is right after these changes, as far as it is for a sync to mend."""
        found = compare(job_id, job, rows, self._ground)
        own, strayed = own_row(rows, self._ground), strayed_row(rows, self._ground)
        in_clock = [drift for drift in found if not drift.left and (drift.jobid is not None or own is None)]
        if not in_clock:
            return True
        if job is not None and job.fires:
            refusal = self._refusal(job.clock_schedule)
            if refusal:
                self._refused[job_id] = refusal
                return False
            if self._ground.has_slots and not _fires_by(job, held):
                return False
        if strayed is not None:
            if strayed.database_exists:
                return False
            changes.removed.append(strayed.jobid)
        needed = job is not None and job.fires and not self._ground.has_slots
        if own is not None and (not needed or is_made_anew(own, self._ground)):
            changes.removed.append(own.jobid)
        if needed and job is not None and not job.is_unknown:
            changes.placed.append((job_id, job.clock_schedule, job.is_careful))
        return True

    def _refusal(self, schedule: str) -> str:
        """What the strict grammar says against a schedule, for example one that was written past it."""
        if schedule not in self._refusals:
            try:
                check(schedule, self._features)
                self._refusals[schedule] = ""
            except SumaclockError as error:
                self._refusals[schedule] = str(error)
        return self._refusals[schedule]

    def _mend_rows(self, tasks: list[Wanted]) -> tuple[set[UUID], set[UUID]]:
        """The jobs whose rows are not as their tasks want them, and those of them that are now."""
        off = [job for job in tasks if job.enabled != job.fires or (job.fires and job.schedule != job.clock_schedule)]
        if not off:
            return set(), set()
        values = {
            "ids": [job.job_id for job in off],
            "schedules": [job.clock_schedule for job in off],
            "fires": [job.fires for job in off],
            "moments": [job.next_run_at for job in off],
        }
        mended = {row[0] for row in self._app.execute(query("mend_task_jobs"), values).fetchall()}
        return {job.job_id for job in off}, mended


def _fires_by(job: Wanted, slots: Collection[UUID]) -> bool:
    """Whether a job is to fire by one of these slots."""
    return job.fires and not job.is_unknown and slot_id(job.clock_schedule) in slots
