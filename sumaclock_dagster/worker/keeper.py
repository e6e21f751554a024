"""The threads that keep a worker alive in the database's eyes, and its runs within their time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event
from time import monotonic

import psycopg

from sumaclock_dagster.db import Connection
from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.model import Failed
from sumaclock_dagster.queue import claims, workers
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.worker.dbclock import DatabaseClock
from sumaclock_dagster.worker.held import HeldRun, HeldRuns
from sumaclock_dagster.worker.session import GivenUp, Session

RELEASE_DEAD_SECONDS = 5.0
RELEASE_SILENT_SECONDS = 60.0
# A run younger than this was just claimed: its heartbeat is its claim.
RENEW_AGE_SECONDS = 10.0
TIMEOUT_LOOK_SECONDS = 0.1
# After a move of the database's clock, or a sleep of the machine, every sign of life looks old for a moment.
CLOCK_MOVED_SECONDS = 10.0


class Keeper:
    """Renews the worker's and its runs' heartbeats, notices lost claims, and releases what dead workers held."""

    def __init__(
        self,
        session: Session,
        worker_id: int,
        settings: Settings,
        held: HeldRuns,
        clock: DatabaseClock,
        log: logging.Logger,
        retire: Callable[[str], None],
        retiring: Callable[[], bool],
    ) -> None:
        self._session = session
        self._worker_id = worker_id
        self._settings = settings
        self._held = held
        self._clock = clock
        self._log = log
        self._retire = retire
        self._retiring = retiring
        self._nudged = Event()
        self._dead_at = 0.0
        self._silent_at = monotonic()

    def nudge(self) -> None:
        """Beat at once: the worker retires or has ended."""
        self._nudged.set()

    def run(self, ended: Event) -> None:
        """Keep until `ended`. A database that is away is the claimer's and finisher's concern; just try again."""
        while True:
            self._nudged.wait(self._settings.heartbeat_seconds)
            self._nudged.clear()
            if ended.is_set():
                break
            try:
                self._session.call(lambda _: self._beat(), give_up=lambda: True)
            except (GivenUp, psycopg.Error) as error:
                self._log.warning("worker %d: no heartbeat: %s", self._worker_id, error.__cause__ or error)
        self._session.close()

    def _beat(self) -> None:
        conn = self._session.connection()
        if self._retiring():
            workers.retire(conn, self._worker_id)
        over, epoch = workers.renew(conn, self._worker_id)
        moved = abs(self._clock.set(epoch)) > CLOCK_MOVED_SECONDS
        if over:
            self._retire("its time is over")
        if moved:
            self._log.warning("worker %d: the database's clock was moved, or this machine slept", self._worker_id)
            self._silent_at = monotonic()
        self._renew_runs(0.0 if moved else RENEW_AGE_SECONDS)
        self._release(conn)

    def _release(self, conn: Connection) -> None:
        now = monotonic()
        silent_every = min(RELEASE_SILENT_SECONDS, self._settings.lease_seconds / 10)
        if now - self._dead_at >= RELEASE_DEAD_SECONDS:
            self._dead_at = now
            self._say(workers.release_dead(conn, self._settings))
        if now - self._silent_at >= silent_every:
            self._silent_at = now
            self._say(workers.release_silent(conn, self._settings))

    def _say(self, released: workers.Released) -> None:
        if released.pending or released.failed:
            self._log.warning("released %d stale runs, failed %d for good", released.pending, released.failed)

    def _renew_runs(self, age_seconds: float) -> None:
        old = [h for h in self._held.open() if monotonic() - h.batch.claimed > age_seconds]
        if not old:
            return
        kept = claims.renew(self._session.connection(), self._worker_id, [(h.run.id, h.run.attempt) for h in old])
        for held in old:
            if held.run.id not in kept and self._held.end(held):
                self._log.warning(
                    "run %d: its claim (attempt %d) was lost to another; its handler is told to stop",
                    held.run.id,
                    held.run.attempt,
                )
                held.cancelled.set()


class Timekeeper:
    """Ends runs whose handler is over its time. Their threads can't be stopped, so the worker retires."""

    def __init__(self, handlers: Handlers, held: HeldRuns, timed_out: Callable[[HeldRun], None]) -> None:
        self._needed = any(r.policy.timeout_seconds is not None for r in handlers.values())
        self._held = held
        self._timed_out = timed_out

    def run(self, ended: Event) -> None:
        while self._needed and not ended.wait(TIMEOUT_LOOK_SECONDS):
            now = monotonic()
            for held in self._held.open():
                deadline = held.deadline
                if deadline is not None and now > deadline and self._held.end(held):
                    held.ended = now
                    held.raised = True
                    held.outcome = Failed(f"The handler timed out after {deadline - held.started:g} s.")
                    held.cancelled.set()
                    self._timed_out(held)
