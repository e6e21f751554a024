"""Sync: pg_cron is made to say what `cron_jobs` and the tasks say, and nothing of another database is touched.

Safe at any time and any number of times at once. A batch of jobs is locked by the locks under which people and workers
change a job, looked at again on both sides, and only then changed. A lock that somebody else holds is not waited for:
its holder leaves the job right itself. A task that is settled meanwhile takes no such lock before its clock job moves,
so that move comes after this one and wins. What a killed sync left half-way is what the next one finds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from psycopg.pq import TransactionStatus

from sumaclock_dagster.clock.bulk import MOST_CHANGES, Changes, NamedClockJob, change_many, read_role_and_port
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.clock.slots import slot_id
from sumaclock_dagster.clock.spent_slots import remove_slots
from sumaclock_dagster.clock.system_jobs import FoundSystemJob, SystemChanges, change_system, system_clock_jobs
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.garbage import rare_collections
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.raw_schedule import check
from sumaclock_dagster.reconcile.differences import Drift, DriftKind, by_job, is_made_anew, own_row, strayed_row
from sumaclock_dagster.reconcile.drift import (
    Wanted,
    compare,
    compare_system,
    find_drift,
    read_ground,
    read_wanted,
    system_row,
    wanted_slots,
)
from sumaclock_dagster.reconcile.report import SyncReport
from sumaclock_dagster.reconcile.slots import hold_slots, place_slots

__all__ = ["BATCH", "BUSY", "Mender", "Say", "SyncReport", "sync"]

# A clock job that is made anew takes two changes.
BATCH = MOST_CHANGES // 2
ROUNDS = 3
BUSY = "Somebody was changing it during the sync, and leaves it right; otherwise sync again."

Say = Callable[[str], None]


@rare_collections()
def sync(app: Connection, clock: Clock, *, dry_run: bool = False, say: Say = lambda _: None) -> SyncReport:
    """Mend all drift, at most 1,000 changes of `cron.job` a transaction; `say` hears of the progress.

    `app` must not be in a transaction. Raises SumaclockError when pg_cron can't be reached, or is used as another role.
    """
    if app.info.transaction_status != TransactionStatus.IDLE:
        raise SumaclockError("A sync commits batch by batch, so its connection must not be in a transaction.")
    found = find_drift(app, clock)
    report = SyncReport(dry_run, found, left=found)
    say(f"Drift: {', '.join(f'{number} {kind}' for kind, number in report.counts.items()) or 'none'}.")
    if dry_run or not found:
        return report
    mender = Mender(app, clock, report, say)
    for _ in range(ROUNDS):
        before = mender.changes
        mender.mend([drift for drift in report.left if not drift.left])
        report.left = mender.explained(find_drift(app, clock))
        if mender.changes == before or not any(not drift.left for drift in report.left):
            break
    report.left = [replace(drift, left=drift.left or BUSY) for drift in report.left]
    return report


class Mender:
    """Mends jobs in batches and counts what it did."""

    def __init__(self, app: Connection, clock: Clock, report: SyncReport, say: Say) -> None:
        self._app = app
        self._clock = clock
        self._report = report
        self._say = say
        self._ground = read_ground(app, clock)
        self._features = clock.features()
        self._refusals: dict[str, str] = {}
        self._refused: dict[UUID | None, str] = {}
        role = read_role_and_port(clock)[0]
        if role != self._ground.role:
            raise SumaclockError(
                f"SUMACLOCK_CRON_DATABASE_URL logs in as '{role}' and SUMACLOCK_DATABASE_URL as '{self._ground.role}'. "
                "Clock jobs fire as the role that schedules them: let both be the app role."
            )

    @property
    def changes(self) -> int:
        return self._report.placed + self._report.removed + self._report.rows

    def mend(self, drifts: Sequence[Drift]) -> None:
        if any(drift.system for drift in drifts):
            self._mend_system()
        # Slots are there before the first job joins them, and until the last has left.
        self._place_slots({drift.slot for drift in drifts if drift.slot and drift.kind is not DriftKind.ORPHAN})
        ids = sorted({drift.job_id for drift in drifts if drift.job_id is not None})
        for start in range(0, len(ids), BATCH):
            self._in_halves(ids[start : start + BATCH], self._mend_batch)
            done = min(start + BATCH, len(ids))
            self._say(f"{done} of {len(ids)} jobs looked at; {self.changes} changes.")
        orphans = [drift.slot for drift in drifts if drift.slot and drift.kind is DriftKind.ORPHAN]
        self._report.removed += remove_slots(self._app, self._clock, orphans)

    def explained(self, drifts: list[Drift]) -> list[Drift]:
        """With the reason why each remains, where there is one."""
        return [
            replace(drift, left=drift.left or self._refused.get(drift.slot or drift.job_id, "")) for drift in drifts
        ]

    def _mend_system(self) -> None:
        try:
            changes = change_system(self._clock, self._decide_system)
        except SumaclockError as error:
            self._refused[None] = str(error)
            read_role_and_port(self._clock)
            return
        self._report.placed += len(changes.placed)
        self._report.removed += len(changes.removed)

    def _decide_system(self, rows: list[FoundSystemJob]) -> SystemChanges:
        changes = SystemChanges()
        for job in system_clock_jobs():
            if any(not drift.left for drift in compare_system(job, rows, self._ground)):
                own = system_row(job, rows, self._ground)
                if own is not None and (not own.is_in_cron_database or is_made_anew(own, self._ground)):
                    changes.removed.append(own.jobid)
                changes.placed.append(job)
        return changes

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
        if not self._ground.has_slots:
            self._leave_slots(ids)
        with self._app.transaction():
            locked = [row[0] for row in self._app.execute(query("try_lock_jobs"), {"ids": ids}).fetchall()]
            # A statement of its own: what it reads is as the locks' former holders left it.
            wanted = read_wanted(self._app, locked)
            slots = wanted_slots(wanted.values(), self._ground)
            held = hold_slots(self._app, slots) if slots else set()
            changes = change_many(self._clock, locked, lambda rows: self._decide(locked, wanted, rows, held))
            rows = self._mend_rows([job for job in wanted.values() if job.is_task and not job.is_unknown])
            # The time from which the slot counts comes after their own clock jobs are gone: no minute fires them twice.
            joining = [job.job_id for job in wanted.values() if not job.in_slot and _fires_by(job, held)]
            if joining:
                rows += self._app.execute(query("join_slots"), {"ids": joining}).rowcount
        self._report.placed += len(changes.placed)
        self._report.removed += len(changes.removed)
        self._report.rows += rows

    def _leave_slots(self, ids: list[UUID]) -> None:
        """Committed before they get clock jobs of their own: no minute fires them twice."""
        with self._app.transaction():
            locked = [row[0] for row in self._app.execute(query("try_lock_jobs"), {"ids": ids}).fetchall()]
            self._report.rows += self._app.execute(query("leave_slots"), {"ids": locked}).rowcount

    def _decide(
        self, ids: list[UUID], wanted: dict[UUID, Wanted], named: list[NamedClockJob], held: set[UUID]
    ) -> Changes:
        changes, rows = Changes(), by_job(named)
        for job_id in ids:
            self._decide_one(changes, job_id, wanted.get(job_id), rows.get(job_id, []), held)
        return changes

    def _decide_one(
        self, changes: Changes, job_id: UUID, job: Wanted | None, rows: list[NamedClockJob], held: set[UUID]
    ) -> None:
        drifts = [drift for drift in compare(job_id, job, rows, self._ground) if not drift.left]
        own, strayed = own_row(rows, self._ground), strayed_row(rows, self._ground)
        in_clock = [drift for drift in drifts if drift.jobid is not None or own is None]
        if not in_clock:
            return
        if job is not None and job.fires:
            refusal = self._refusal(job.clock_schedule)
            if refusal:
                self._refused[job_id] = refusal
                return
            if self._ground.has_slots and not _fires_by(job, held):
                return
        if strayed is not None:
            if strayed.database_exists:
                return
            changes.removed.append(strayed.jobid)
        needed = job is not None and job.fires and not self._ground.has_slots
        if own is not None and (not needed or is_made_anew(own, self._ground)):
            changes.removed.append(own.jobid)
        if needed and job is not None and not job.is_unknown:
            changes.placed.append((job_id, job.clock_schedule, job.is_careful))

    def _refusal(self, schedule: str) -> str:
        """What the strict grammar says against a schedule, for example one that was written past it."""
        if schedule not in self._refusals:
            try:
                check(schedule, self._features)
                self._refusals[schedule] = ""
            except SumaclockError as error:
                self._refusals[schedule] = str(error)
        return self._refusals[schedule]

    def _mend_rows(self, tasks: list[Wanted]) -> int:
        off = [job for job in tasks if job.enabled != job.fires or (job.fires and job.schedule != job.clock_schedule)]
        if not off:
            return 0
        values = {
            "ids": [job.job_id for job in off],
            "schedules": [job.clock_schedule for job in off],
            "fires": [job.fires for job in off],
            "moments": [job.next_run_at for job in off],
        }
        return len(self._app.execute(query("mend_task_jobs"), values).fetchall())


def _fires_by(job: Wanted, slots: set[UUID]) -> bool:
    """Whether a job is to fire by one of these slots."""
    return job.fires and not job.is_unknown and slot_id(job.clock_schedule) in slots
