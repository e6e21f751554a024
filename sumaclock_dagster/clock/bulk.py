"""Many clock jobs at once: one look at all that bear our name, and changes of up to a thousand in one statement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from psycopg.rows import class_row

from sumaclock_dagster.arrays import text_array
from sumaclock_dagster.clock.command import firing_command, slot_firing_command
from sumaclock_dagster.clock.pg_cron import PREFIX, Clock, check_database_name
from sumaclock_dagster.clock.slots import SLOT_PREFIX
from sumaclock_dagster.db import Connection, query

# pg_cron never notices about 3,000 changes in one transaction, until the next one.
MOST_CHANGES = 1000


@dataclass(frozen=True, slots=True)
class NamedClockJob:
    """A row of `cron.job` with a name of ours. It is ours only where database and username are, too. job_id: of a slot,
    where it is named like one's."""

    jobid: int
    job_id: UUID
    schedule: str
    command: str
    active: bool
    database: str
    username: str
    host: str
    port: int
    database_exists: bool


@dataclass(slots=True)
class Changes:
    """removed: numbers of pg_cron. placed: (job id or slot, raw schedule, whether its command is careful; of a slot it
    always is). What is in both is made anew."""

    removed: list[int] = field(default_factory=list)
    placed: list[tuple[UUID, str, bool]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.removed) + len(self.placed)


def list_named(clock: Clock, ids: Collection[UUID] | None = None, prefix: str = PREFIX) -> list[NamedClockJob]:
    """The clock jobs named like ours (of these jobs or, with SLOT_PREFIX, slots; or all) that its role may see."""
    return clock.call(lambda conn: _list_named(conn, clock.database_name, ids, prefix))


def read_role_and_port(clock: Clock) -> tuple[str, int]:
    """As whom the clock schedules, and the port that a new clock job gets."""

    def read(conn: Connection) -> tuple[str, int]:
        row = conn.execute(query("read_clock_ground")).fetchone()
        assert row is not None  # noqa: S101  (a select without from has one row)
        return str(row[0]), int(row[1])

    return clock.call(read)


def change_many(
    clock: Clock,
    ids: Collection[UUID],
    decide: Callable[[list[NamedClockJob]], Changes],
    prefix: str = PREFIX,
) -> Changes:
    """Look at the clock jobs of these jobs (or slots) and make the changes that `decide` wants, in one transaction. It
    may be asked again. Raises SumaclockError; ValueError for over 1,000 changes."""

    def work(conn: Connection) -> Changes:
        with conn.transaction():
            changes = decide(_list_named(conn, clock.database_name, ids, prefix))
            if len(changes) > MOST_CHANGES:
                raise ValueError(f"{len(changes)} changes of cron.job are too many for one transaction.")
            _apply(conn, clock.database_name, changes, prefix)
        return changes

    return clock.call(work)


def clear(clock: Clock) -> int:
    """Remove every clock job of this database and role, slots' too. Returns how many."""
    return _clear(clock, PREFIX) + _clear(clock, SLOT_PREFIX)


def _clear(clock: Clock, prefix: str) -> int:
    removed = 0
    while some := clock.listed(prefix)[:MOST_CHANGES]:
        ids = [job.job_id for job in some]
        if prefix == SLOT_PREFIX:
            clock.slots.forget(ids)
        removed += len(change_many(clock, ids, partial(_all_of, [job.jobid for job in some]), prefix))
    return removed


def _all_of(jobids: Collection[int], named: list[NamedClockJob]) -> Changes:
    """Those that are still there; a number of pg_cron is never given twice."""
    return Changes(removed=[job.jobid for job in named if job.jobid in jobids])


def _list_named(conn: Connection, database: str, ids: Collection[UUID] | None, prefix: str) -> list[NamedClockJob]:
    cursor = conn.cursor(row_factory=class_row(NamedClockJob))
    if ids is None:
        return cursor.execute(query("list_named_clock_jobs"), {"prefix": f"{database}{prefix}"}).fetchall()
    values = {"names": _names(database, prefix, ids)}
    return cursor.execute(query("list_clock_jobs_by_name"), values, prepare=False).fetchall()


def _apply(conn: Connection, database: str, changes: Changes, prefix: str) -> None:
    if changes.removed:
        conn.execute(query("unschedule_clock_jobs"), {"jobids": changes.removed}, prepare=False)
    if changes.placed:
        command = _slot_command if prefix == SLOT_PREFIX else _job_command
        values = {
            "database": database,
            "names": _names(database, prefix, (job_id for job_id, _, _ in changes.placed)),
            "schedules": text_array(schedule for _, schedule, _ in changes.placed),
            "commands": text_array(command(job_id, careful) for job_id, _, careful in changes.placed),
        }
        conn.execute(query("schedule_clock_jobs"), values, prepare=False)


def _names(database: str, prefix: str, ids: Iterable[UUID]) -> str:
    """Their clock jobs' names, as the text of an array."""
    check_database_name(database)
    return text_array(f"{database}{prefix}{job_id}" for job_id in ids)


def _job_command(job_id: UUID, careful: bool) -> str:
    return firing_command(job_id, careful=careful)


def _slot_command(slot: UUID, _: bool) -> str:
    return slot_firing_command(slot)
