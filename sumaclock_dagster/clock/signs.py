"""What a look at the clock reads: plain values, from which `faults` tells what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Launcher(StrEnum):
    """pg_cron's process, as watched for a few seconds where it is not simply there."""

    ALIVE = "alive"
    GONE = "gone"
    CRASHING = "crashing"


@dataclass(frozen=True, slots=True)
class Lack:
    """A right that the app role lacks in `database`, and the statement that gives it."""

    right: str
    statement: str
    database: str


@dataclass(frozen=True, slots=True)
class ClockRows:
    """The app role's rows of cron.job. stray: of this database's jobs, those that fire at another server (stray_place:
    one of these). lost: jobs of ours by name that fire into lost_database, which does not exist."""

    jobs: int = 0
    stray: int = 0
    stray_place: str = ""
    lost: int = 0
    lost_database: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a firing ended, as pg_cron noted it. ended_at: None where it noted no time."""

    status: str
    message: str
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Signs:
    """One look at the clock from the app database and pg_cron's. All moments are of the server's clock, aware.

    cron_database: where pg_cron works. settings: those of pg_cron, without their prefix 'cron.'; {} where it is not
    loaded, or where first_boot.sql has not run. first_boot_role: what first_boot.sql made the app role, "" if unknown.
    lacking: where a right is missing, nothing below it has been read. newest: the latest moment of the clock's newest
    firings and the server's start. slot_failures: firings of the last minutes that found no background worker.
    unstarted: clock jobs that are right and due, and that pg_cron has not begun; due_since: the first one's minute.
    running: firings that pg_cron executes now. late_starts: those that it began over half a minute late.
    without_role: rows of cron.job by the role that does not exist; None where no superuser looked.
    """

    database: str
    role: str
    cron_database: str
    seen_at: datetime
    is_standby: bool
    worker_slots: int
    first_boot_role: str = ""
    launcher: Launcher = Launcher.ALIVE
    settings: Mapping[str, str] | None = None
    lacking: tuple[Lack, ...] = ()
    rows: ClockRows = ClockRows()
    newest: datetime | None = None
    last_outcome: Outcome | None = None
    slot_failures: int = 0
    unstarted: int = 0
    due_since: datetime | None = None
    running: int = 0
    late_starts: int = 0
    without_role: Mapping[str, tuple[int, ...]] | None = None

    @property
    def host(self) -> str:
        """Where pg_cron logs in, for clock jobs made today."""
        return (self.settings or {}).get("host", "localhost")

    @property
    def uses_workers(self) -> bool:
        """Background workers instead of logins."""
        return (self.settings or {}).get("use_background_workers") == "on"
