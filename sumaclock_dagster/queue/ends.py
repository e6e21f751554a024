"""Watching runs end, by looking: nothing notifies of an end, and what is not watched costs a worker nothing."""

from __future__ import annotations

from datetime import datetime

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import Run, RunStatus
from sumaclock_dagster.queue.runs import _runs, list_runs

# Ids are taken before the commit, so a run may appear below one that was seen already.
NEWEST = 1000


class Ends:
    """Which runs ended since the last look. What had ended before the first is not told.

    A retried run is told again if it is among the newest 1,000 or waited at the time of a look.
    """

    def __init__(self, app: Connection) -> None:
        self._app = app
        newest = list_runs(app, limit=1)
        self._newest = newest[0].id if newest else 0
        running = {run.id for run in list_runs(app, status=RunStatus.RUNNING, limit=10_000)}
        unfinished, ended = self._read()
        self._watched = unfinished | running
        self._told = ended

    def look(self) -> list[Run]:
        """Runs that ended since the last look, in the order of their ends."""
        unfinished, ended = self._read()
        self._watched |= unfinished
        news = self._watched | {run for run, at in ended.items() if self._told.get(run) != at}
        runs = _runs(self._app, "list_ended_runs", {"ids": list(news)}) if news else []
        told = {run.id: run.finished_at for run in runs if run.finished_at is not None}
        self._watched -= told.keys()
        self._told = {run: at for run, at in (self._told | told).items() if run > self._newest - NEWEST}
        return runs

    def _read(self) -> tuple[set[int], dict[int, datetime]]:
        """The ids of runs that have not ended, and those of the newest that have, with the time of their end."""
        rows = self._app.execute(query("list_runs_to_watch"), {"after": self._newest - NEWEST}).fetchall()
        self._newest = max([self._newest, *(run for run, _ in rows)])
        return {run for run, at in rows if at is None}, {run: at for run, at in rows if at is not None}
