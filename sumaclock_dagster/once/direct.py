"""Direct commands: what cannot run inside a transaction is a clock job of its own, which fires once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from sumaclock_dagster.clock.pg_cron import Clock, check_database_name
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError

PREFIX = ":once:"
COMMAND_MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class DirectCommand:
    """status: waiting, or what pg_cron says: starting, connecting, sending, running, and then succeeded or failed."""

    name: str
    command: str
    status: str
    message: str | None
    started_at: datetime | None
    ended_at: datetime | None


def place_direct(clock: Clock, command: str) -> tuple[str, datetime]:
    """Let pg_cron run `command` once, as the clock's role, in its next minute or the one after, outside of any
    transaction. There are no second attempts. Returns the clock job's name and the minute. Raises SumaclockError."""
    check_database_name(clock.database_name)
    if not command.strip() or "\x00" in command or len(command.encode(errors="replace")) > COMMAND_MAX_BYTES:
        raise SumaclockError(f"The command must be 1 to {COMMAND_MAX_BYTES:,} bytes of SQL, without NUL.")

    def work(conn: Connection) -> tuple[str, datetime]:
        with conn.transaction():
            name = f"{clock.database_name}{PREFIX}sweeper"
            conn.execute(query("schedule_direct_sweeper"), {"database": clock.database_name, "name": name})
            values = {"database": clock.database_name, "command": command}
            row = conn.execute(query("schedule_direct_job"), values).fetchall()[0]
        return str(row[0]), row[1]

    return clock.call(work)


def list_direct(clock: Clock, limit: int = 50) -> list[DirectCommand]:
    """Direct commands of the clock's role: those that wait, then those in pg_cron's log, newest first."""
    values = {
        "database": clock.database_name,
        "marker": f"/* sumaclock {clock.database_name}{PREFIX}",
        "limit": limit,
    }
    return clock.call(
        lambda conn: (
            conn.cursor(row_factory=class_row(DirectCommand)).execute(query("list_direct_jobs"), values).fetchall()
        )
    )


def list_direct_jobs(clock: Clock) -> list[int]:
    """pg_cron's numbers of the clock jobs of direct commands of the clock's role, and of their sweeper."""
    values = {"prefix": f"{clock.database_name}{PREFIX}", "role": None}
    return clock.call(lambda conn: [row[0] for row in conn.execute(query("list_runner_jobs"), values).fetchall()])


def clear_direct(clock: Clock) -> int:
    """Remove them all; one that runs is cancelled. Returns how many."""
    jobids = list_direct_jobs(clock)
    if jobids:
        clock.call(lambda conn: conn.execute(query("unschedule_clock_jobs"), {"jobids": jobids}))
    return len(jobids)
