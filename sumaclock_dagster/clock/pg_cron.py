"""The clock jobs of one app database, in the cluster's pg_cron."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID, uuid4

import psycopg
from psycopg import errors
from psycopg.rows import class_row

from sumaclock_dagster.clock.command import firing_command, slot_firing_command
from sumaclock_dagster.clock.reach import connect_or_refuse
from sumaclock_dagster.clock.refusals import clock_refusal
from sumaclock_dagster.clock.slots import SLOT_PREFIX, SlotNotes, slot_id
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import ClockMode, SumaclockError
from sumaclock_dagster.raw_schedule import ClockFeatures

T = TypeVar("T")
PREFIX = ":cron:"
# pg_cron 1.4 cuts job names to 63 bytes without a word; longer ones would collide.
DATABASE_NAME_MAX_BYTES = 63 - len(PREFIX) - 36
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ClockJob:
    """A row of `cron.job` that is ours. `jobid` is pg_cron's own number; an inactive one never fires. job_id: the slot,
    where it is a slot's."""

    jobid: int
    job_id: UUID
    schedule: str
    command: str
    active: bool


def clock_job_name(database_name: str, job_id: UUID, prefix: str = PREFIX) -> str:
    """`<database>:cron:<job id>`, or with SLOT_PREFIX `<database>:slot:<slot>`, which is as long. Raises SumaclockError
    for a database name over 21 bytes."""
    check_database_name(database_name)
    return f"{database_name}{prefix}{job_id}"


def check_database_name(database_name: str) -> None:
    """Raises SumaclockError for an app database's name over 21 bytes."""
    size = len(database_name.encode())
    if size > DATABASE_NAME_MAX_BYTES:
        raise SumaclockError(
            f"The app database's name '{database_name}' has {size} bytes; clock jobs have room for "
            f"{DATABASE_NAME_MAX_BYTES}. Rename it (`alter database ... rename to ...`) or use another app database."
        )


def open_clock(app: Connection, cron_url: str, mode: ClockMode = "jobs") -> Clock:
    """The clock of the database that `app` is connected to. Nothing connects to pg_cron until it is used."""
    row = app.execute(query("read_current_database")).fetchone()
    assert row is not None  # noqa: S101  (a select without from has one row)
    return Clock(cron_url, str(row[0]), mode)


class Clock:
    """Places and removes clock jobs over one connection of its own, opened on first use and again after a break.

    database_name: the app database's real name, as PostgreSQL (not a pooler) calls it.
    mode: how jobs fire that are placed from now on, and that a sync moves.
    Every method raises SumaclockError with the remedy when pg_cron cannot be reached or refuses. Threads may share it.
    """

    def __init__(self, cron_url: str, database_name: str, mode: ClockMode = "jobs") -> None:
        self.database_name = database_name
        self.has_slots = mode == "slots"
        self.slots = SlotNotes(cron_url, database_name)
        self._cron_url = cron_url
        self._connection: Connection | None = None
        self._features: ClockFeatures | None = None
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens one again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = self._features = None
            self.slots.close()

    def another(self) -> Clock:
        """The same clock over a connection of its own, to be closed by whoever asked for it."""
        return Clock(self._cron_url, self.database_name, "slots" if self.has_slots else "jobs")

    def schedule(self, job_id: UUID, schedule: str, *, careful: bool = False) -> None:
        """Make the job's clock job, or change it to this raw schedule and command (see `firing_command`), and see that
        it is active. Where it is so already, nothing is written."""
        command = firing_command(job_id, careful=careful)
        name = clock_job_name(self.database_name, job_id)
        self.call(lambda conn: _place(conn, self.database_name, name, schedule, command))

    def unschedule(self, job_id: UUID) -> None:
        """Remove the job's clock job. One that is not there, or that another session removes just now, is fine."""
        name = clock_job_name(self.database_name, job_id)
        self.call(lambda conn: _remove(conn, self.database_name, name))

    def place_slot(self, schedule: str, *, look: bool = False) -> None:
        """See that the slot of a raw schedule fires: first in pg_cron, then in `clock_slots`. Where that says so
        already, nothing is sent to pg_cron, unless it is to `look` there all the same."""
        slot = slot_id(schedule)
        name = clock_job_name(self.database_name, slot, SLOT_PREFIX)
        with self._lock:
            if look or not self.slots.noted([slot]):
                command = slot_firing_command(slot)
                self.call(lambda conn: _place(conn, self.database_name, name, schedule, command))
                self.slots.note({slot: schedule})

    def listed(self, prefix: str = PREFIX) -> list[ClockJob]:
        """The clock jobs of this database and role, and nobody else's: those of jobs, or with SLOT_PREFIX of slots."""
        where = {"database": self.database_name, "prefix": f"{self.database_name}{prefix}"}
        return self.call(
            lambda conn: (
                conn.cursor(row_factory=class_row(ClockJob)).execute(query("list_clock_jobs"), where).fetchall()
            )
        )

    def find(self, job_id: UUID, prefix: str = PREFIX) -> ClockJob | None:
        """The clock job of a job, or with SLOT_PREFIX of a slot; or None."""
        name = clock_job_name(self.database_name, job_id, prefix)
        row = self.call(lambda conn: _find(conn, name))
        if row is None or row["database"] != self.database_name:
            return None
        return ClockJob(row["jobid"], job_id, row["schedule"], row["command"], row["active"])

    def features(self) -> ClockFeatures:
        """What this pg_cron understands, found by trying it in a transaction that is rolled back.

        Raises SumaclockError for pg_cron before 1.4 and for 1.6.0 to 1.6.2.
        """
        if self._features is None:
            self._features = self.call(lambda conn: _try_features(conn, self.database_name))
        return self._features

    def call(self, work: Callable[[Connection], T]) -> T:
        """Do `work`, which may be repeated: after a break of the connection, and after a collision in cron.job."""
        with self._lock:
            for attempt in range(1, ATTEMPTS + 1):
                connection = self._open()
                try:
                    return work(connection)
                except psycopg.Error as error:
                    broken, collided = connection.closed, isinstance(error, errors.InternalError_)
                    if broken:
                        self.close()
                    if not (broken and attempt == 1) and not (collided and attempt < ATTEMPTS):
                        raise clock_refusal(error) from None
        raise AssertionError("the last attempt returns or raises")

    def _open(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self.close()
            connection = connect_or_refuse(self._cron_url, "sumaclock clock", "SUMACLOCK_CRON_DATABASE_URL")
            connection.execute(query("limit_clock_session"))
            self._connection = connection
        return self._connection


def _place(conn: Connection, database: str, name: str, schedule: str, command: str) -> None:
    with conn.transaction():
        row = _find(conn, name)
        if row is not None and row["database"] != database:
            raise SumaclockError(
                f"A clock job '{name}' exists for database '{row['database']}', so it is not ours to change. "
                "Whoever made it must rename or remove it."
            )
        if row is not None and row["active"] and (row["schedule"], row["command"]) == (schedule, command):
            return
        if row is not None and not row["active"]:
            # Scheduling an existing name never makes it active again.
            conn.execute(query("unschedule_clock_job"), {"jobid": row["jobid"]})
        conn.execute(
            query("schedule_clock_job"),
            {"name": name, "schedule": schedule, "command": command, "database": database},
        )


def _remove(conn: Connection, database: str, name: str) -> None:
    with conn.transaction():
        row = _find(conn, name)
        if row is not None and row["database"] == database:
            conn.execute(query("unschedule_clock_job"), {"jobid": row["jobid"]})


def _find(conn: Connection, name: str) -> dict[str, Any] | None:
    return conn.cursor(row_factory=class_row(dict)).execute(query("find_clock_job"), {"name": name}).fetchone()


def _try_features(conn: Connection, database: str) -> ClockFeatures:
    name = clock_job_name(database, uuid4())
    with conn.transaction(force_rollback=True):
        found = ClockFeatures(
            seconds=_accepts(conn, database, name, "30 seconds"),
            last_day=_accepts(conn, database, name, "0 0 $ * *"),
        )
        if found.last_day and not _moves(conn, database, name):
            raise SumaclockError(
                "pg_cron 1.6.0 to 1.6.2 is installed, which reads some schedules wrongly and keeps a clock job in its "
                "old database when it moves. Install 1.6.3 or later, then `alter extension pg_cron update`."
            )
    return found


def _accepts(conn: Connection, database: str, name: str, schedule: str) -> bool:
    try:
        with conn.transaction():
            conn.execute(
                query("schedule_clock_job"),
                {"name": name, "schedule": schedule, "command": "select", "database": database},
            )
    except errors.InvalidParameterValue:
        return False
    return True


def _moves(conn: Connection, database: str, name: str) -> bool:
    """Whether scheduling a name again changes its database: the one thing that tells 1.6.3 from 1.6.0 to 1.6.2."""
    other = conn.execute(query("find_other_database"), {"database": database}).fetchone()
    if other is None or not _accepts(conn, other[0], name, "* * * * *"):
        return False
    row = _find(conn, name)
    return row is not None and row["database"] == other[0]
