"""Finished runs as they happen, for people who watch."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from sumaclock_dagster.db import Connection
from sumaclock_dagster.model import Run, RunStatus, SumaclockError
from sumaclock_dagster.queue.runs import get_run, list_runs, runs_since

AT_ONCE = 100
OPEN_MAX = 200
ENDED = (RunStatus.DONE, RunStatus.FAILED, RunStatus.SKIPPED)


class Watch:
    """Follows runs from now on, and those that are open now. Opens its connection when it needs one, and again after
    a break; what happens in between is caught up with."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._last_id: int | None = None
        self._open: set[int] = set()
        self._away = False

    def look(self) -> tuple[list[Run], list[str]]:
        """Runs that have ended since the last look, oldest first, and what else people should know."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
            ended, skipped = self._look(self._connection)
        except psycopg.Error:
            self.close()
            told = [] if self._away else ["The database cannot be reached; runs wait in it. Trying again."]
            self._away = True
            return [], told
        told = ["The database is back."] if self._away else []
        self._away = False
        if skipped:
            told.append("More runs than this window can show. `sumaclock runs list` has them all.")
        return ended, told

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look(self, conn: Connection) -> tuple[list[Run], bool]:
        if self._last_id is None:
            self._begin(conn)
        arrived = runs_since(conn, self._last_id or 0, AT_ONCE)
        self._last_id = max((run.id for run in arrived), default=self._last_id)
        known = [run for run in map(lambda number: _found(conn, number), sorted(self._open)) if run is not None]
        self._open = {run.id for run in [*known, *arrived] if run.status not in ENDED}
        ended = [run for run in [*known, *arrived] if run.status in ENDED]
        too_many = len(arrived) == AT_ONCE or len(self._open) > OPEN_MAX
        if too_many:
            self._begin(conn)
        return ended, too_many

    def _begin(self, conn: Connection) -> None:
        newest = list_runs(conn, limit=1)
        self._last_id = newest[0].id if newest else 0
        unfinished = [*list_runs(conn, status=RunStatus.PENDING), *list_runs(conn, status=RunStatus.RUNNING)]
        self._open = {run.id for run in unfinished}


def line(run: Run) -> str:
    """What people see of a finished run. Times of day in UTC and, where it is another, in this machine's zone."""
    minute, local = f"{run.scheduled_at:%H:%M} UTC", f"{run.scheduled_at.astimezone():%H:%M %Z}"
    minute = minute if minute == local else f"{minute} ({local})"
    parts = [f"{minute}  {run.kind}", f"organization {run.organization_id}"]
    if run.started_at is not None:
        parts.append(f"{(run.started_at - run.scheduled_at).total_seconds():.3f} s late")
        if run.finished_at is not None:
            parts.append(f"took {(run.finished_at - run.started_at).total_seconds():.3f} s")
    reason = f": {run.error.splitlines()[0][:200]}" if run.error else ""
    return ", ".join(parts) + f": {run.status.value}{reason}"


def _found(conn: Connection, run_id: int) -> Run | None:
    try:
        return get_run(conn, run_id)
    except SumaclockError:
        return None
