"""Sync: pg_cron is made to say what `cron_jobs` and the tasks say, and nothing of another database is touched.

Safe at any time and any number of times at once. A batch of jobs is locked by the locks under which people and workers
change a job, looked at again on both sides, and only then changed. A lock that somebody else holds is not waited for:
its holder leaves the job right itself. A task that is settled meanwhile takes no such lock before its clock job moves,
so that move comes after this one and wins. What a killed sync left half-way is what the next one finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from psycopg.pq import TransactionStatus

from sumaclock_dagster.clock.bulk import MOST_CHANGES, Changes, NamedClockJob, change_many, read_role_and_port
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.clock.system_jobs import FoundSystemJob, SystemChanges, change_system, system_clock_jobs
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.raw_schedule import check
from sumaclock_dagster.reconcile.drift import (
    Drift,
    Ground,
    Wanted,
    by_job,
    compare,
    compare_system,
    count_by_kind,
    find_drift,
    own_row,
    read_ground,
    read_wanted,
    strayed_row,
    system_row,
)

# A clock job that is made anew takes two changes.
BATCH = MOST_CHANGES // 2
ROUNDS = 3
BUSY = "Somebody was changing it during the sync, and leaves it right; otherwise sync again."


@dataclass(slots=True)
class SyncReport:
    """What a sync found, and what it did.

    found: the drift at its start. left: what remains, each with the reason; the same as found in a dry run.
    placed, removed: changes of clock jobs; made anew counts as both. rows: rows of `cron_jobs` that were mended.
    """

    dry_run: bool
    found: list[Drift]
    left: list[Drift] = field(default_factory=list)
    placed: int = 0
    removed: int = 0
    rows: int = 0

    @property
    def counts(self) -> dict[str, int]:
        return count_by_kind(self.found)

    @property
    def mended(self) -> list[Drift]:
        """What was found and does not remain."""
        remaining = Counter((drift.subject, drift.kind) for drift in self.left)
        return [drift for drift in self.found if not remaining[(drift.subject, drift.kind)]]


Say = Callable[[str], None]


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
        ids = sorted({drift.job_id for drift in drifts if drift.job_id is not None})
        for start in range(0, len(ids), BATCH):
            self._mend(ids[start : start + BATCH])
            done = min(start + BATCH, len(ids))
            self._say(f"{done} of {len(ids)} jobs looked at; {self.changes} changes.")

    def explained(self, drifts: list[Drift]) -> list[Drift]:
        """With the reason why each remains, where there is one."""
        return [replace(drift, left=drift.left or self._refused.get(drift.job_id, "")) for drift in drifts]

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

    def _mend(self, ids: list[UUID]) -> None:
        """One bad job harms itself alone: a batch that pg_cron refuses is halved until it is found."""
        try:
            self._mend_batch(ids)
        except SumaclockError as error:
            if len(ids) == 1:
                self._refused[ids[0]] = str(error)
                return
            # When pg_cron is away, this raises, and so does the sync.
            read_role_and_port(self._clock)
            self._mend(ids[: len(ids) // 2])
            self._mend(ids[len(ids) // 2 :])

    def _mend_batch(self, ids: list[UUID]) -> None:
        with self._app.transaction():
            locked = [row[0] for row in self._app.execute(query("try_lock_jobs"), {"ids": ids}).fetchall()]
            # A statement of its own: what it reads is as the locks' former holders left it.
            wanted = read_wanted(self._app, locked)
            changes = change_many(self._clock, locked, lambda rows: self._decide(locked, wanted, rows))
            rows = self._mend_rows([job for job in wanted.values() if job.is_task and not job.is_unknown])
        self._report.placed += len(changes.placed)
        self._report.removed += len(changes.removed)
        self._report.rows += rows

    def _decide(self, ids: list[UUID], wanted: dict[UUID, Wanted], named: list[NamedClockJob]) -> Changes:
        changes, rows = Changes(), by_job(named)
        for job_id in ids:
            self._decide_one(changes, job_id, wanted.get(job_id), rows.get(job_id, []))
        return changes

    def _decide_one(self, changes: Changes, job_id: UUID, job: Wanted | None, rows: list[NamedClockJob]) -> None:
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
        if strayed is not None:
            if strayed.database_exists:
                return
            changes.removed.append(strayed.jobid)
        if own is not None and (job is None or not job.fires or is_made_anew(own, self._ground)):
            changes.removed.append(own.jobid)
        if job is not None and job.fires and not job.is_unknown:
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


def is_made_anew(own: NamedClockJob | FoundSystemJob, ground: Ground) -> bool:
    """Scheduling an existing name changes neither whether it is active nor where it fires."""
    return not own.active or own.port != ground.port or bool(ground.host and own.host != ground.host)
