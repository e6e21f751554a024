"""Watching runs end, by looking: nothing notifies of an end, and what is not watched costs a worker nothing."""

from __future__ import annotations

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import Run
from sumaclock_dagster.queue.runs import _runs, list_runs

# Ids are taken before the commit, so a run may appear below one that was seen already.
LATE_IDS = 1000


class Ends:
    """Which runs ended since the last look, a retried run again. What had ended before the first is not told."""

    def __init__(self, app: Connection) -> None:
        self._app = app
        newest = list_runs(app, limit=1)
        self._newest = newest[0].id if newest else 0
        recent, unfinished = self._read()
        self._watched = unfinished
        self._told = recent - unfinished

    def look(self) -> list[Run]:
        """Runs that ended since the last look, in the order of their ends."""
        recent, unfinished = self._read()
        self._watched |= (recent - self._told) | unfinished
        ended = _runs(self._app, "list_ended_runs", {"ids": list(self._watched)}) if self._watched else []
        ids = {run.id for run in ended}
        self._watched -= ids
        self._told = {run for run in self._told | ids if run > self._newest - LATE_IDS}
        return ended

    def _read(self) -> tuple[set[int], set[int]]:
        """The ids of the newest runs, and of all that have not ended."""
        rows = self._app.execute(query("list_runs_to_watch"), {"after": self._newest - LATE_IDS}).fetchall()
        self._newest = max([self._newest, *(run for run, _ in rows)])
        return {run for run, is_open in rows if not is_open}, {run for run, is_open in rows if is_open}
