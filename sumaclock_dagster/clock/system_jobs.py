"""System clock jobs: what pg_cron does for its own sake, in its own database, as the app role.

Each app database has its own, named `<database>:system:<what>`. Their commands are fixed texts. sql/first_boot.sql
makes them, a sync keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from psycopg.rows import class_row

from sumaclock_dagster.clock.pg_cron import Clock, check_database_name
from sumaclock_dagster.db import Connection, query

PREFIX = ":system:"


@dataclass(frozen=True, slots=True)
class SystemClockJob:
    """What a system clock job should be."""

    what: str
    schedule: str
    command: str


@dataclass(frozen=True, slots=True)
class FoundSystemJob:
    """A row of `cron.job` that is named like a system clock job of this database. is_own: it runs as whoever looks."""

    jobid: int
    what: str
    schedule: str
    command: str
    active: bool
    database: str
    host: str
    port: int
    username: str
    is_own: bool
    is_in_cron_database: bool
    database_exists: bool


@dataclass(slots=True)
class SystemChanges:
    """removed: numbers of pg_cron. What is in both is made anew."""

    removed: list[int] = field(default_factory=list)
    placed: list[SystemClockJob] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.removed) + len(self.placed)


def system_clock_jobs() -> tuple[SystemClockJob, ...]:
    """All of them. The commands are constants: nothing is put into them.

    canary: touches `cron.job` each minute, so that a change which pg_cron's launcher missed is noticed with it.
    prune_log: pg_cron's log of this role's firings, which nothing else would end, is kept for 7 days.
    """
    return (
        SystemClockJob("canary", "* * * * *", _command("touch_clock_jobs")),
        SystemClockJob("prune_log", "3-53/10 * * * *", _command("prune_clock_log")),
    )


def list_system(clock: Clock) -> list[FoundSystemJob]:
    """Those that are there, in whichever database they run and also of a kind that this version does not know."""
    return clock.call(lambda conn: _list(conn, clock.database_name))


def change_system(clock: Clock, decide: Callable[[list[FoundSystemJob]], SystemChanges]) -> SystemChanges:
    """Look at them and make the changes that `decide` wants, in one transaction in which no canary runs. It may be
    asked again. Raises SumaclockError."""
    check_database_name(clock.database_name)

    def work(conn: Connection) -> SystemChanges:
        with conn.transaction():
            # A statement of its own: the look must see what a canary wrote before it let go.
            conn.execute(query("lock_system_clock_jobs"))
            changes = decide(_list(conn, clock.database_name))
            _apply(conn, clock.database_name, changes)
        return changes

    return clock.call(work)


def clear_system(clock: Clock) -> int:
    """Remove every system clock job of this database and role. Returns how many."""
    return len(change_system(clock, lambda found: SystemChanges([job.jobid for job in own_system(clock, found)])))


def own_system(clock: Clock, found: list[FoundSystemJob]) -> list[FoundSystemJob]:
    """Without those that run as somebody else, or in somebody else's database."""
    return [job for job in found if job.is_own and (job.is_in_cron_database or job.database == clock.database_name)]


def _command(name: str) -> str:
    return query(name).decode().strip()


def _list(conn: Connection, database: str) -> list[FoundSystemJob]:
    cursor = conn.cursor(row_factory=class_row(FoundSystemJob))
    return cursor.execute(query("list_system_clock_jobs"), {"prefix": f"{database}{PREFIX}"}).fetchall()


def _apply(conn: Connection, database: str, changes: SystemChanges) -> None:
    if changes.removed:
        conn.execute(query("unschedule_clock_jobs"), {"jobids": changes.removed}, prepare=False)
    if changes.placed:
        values = {
            "database": conn.execute(query("read_current_database")).fetchall()[0][0],
            "names": [f"{database}{PREFIX}{job.what}" for job in changes.placed],
            "schedules": [job.schedule for job in changes.placed],
            "commands": [job.command for job in changes.placed],
        }
        conn.execute(query("schedule_clock_jobs"), values, prepare=False)
