"""The threads that claim: LISTEN, then look, then wait (rule 12), on the session whose lock is the worker's life."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from threading import Event, Lock
from time import monotonic
from uuid import UUID

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.queue import claims
from sumaclock_dagster.queue.claims import Claim, Claimed
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.worker.hands import Hands
from sumaclock_dagster.worker.held import Batch, HeldRun, HeldRuns
from sumaclock_dagster.worker.pace import Pace
from sumaclock_dagster.worker.session import GivenUp, Session, Wake

# How soon to look whether one thread is enough for a batch that was expected to be fast.
HURRY_SECONDS = 0.005
HAND_OVER_SECONDS = 0.002
# An idle worker asks no more often than this whether it is one too many.
LINGER_LOOK_SECONDS = 0.5
# What has waited this long for a thread of this worker is given back: handlers turned out slow.
WAIT_MOST_SECONDS = 1.0


class Claimer:
    """Two threads claim in turns. The one that wakes for a single run is awake, and a thread of the hands is not: it
    executes the run itself, and the other goes on claiming.
    """

    def __init__(
        self,
        session: Session,
        worker_id: int,
        dagster_run_id: UUID | None,
        settings: Settings,
        held: HeldRuns,
        hands: Hands,
        pace: Pace,
        log: logging.Logger,
        stopping: Callable[[], bool],
        surplus: Callable[[Connection], bool],
    ) -> None:
        self._session = session
        self._worker_id = worker_id
        self._dagster_run_id = dagster_run_id
        self._settings = settings
        self._held = held
        self._hands = hands
        self._pace = pace
        self._log = log
        self._stopping = stopping
        self._surplus = surplus
        self._wake = Wake()
        self._claim: Claim
        self._notified = Event()
        self._idle_since = monotonic()
        self._waits_for_room = False
        # The last claim took all that was due.
        self._took_all = False
        self._turn = Lock()
        self._spare: deque[None] = deque()

    def opened(self, conn: Connection) -> None:
        """Prepare the session's new connection. After a break the database may hold runs for this worker whose claim
        was never answered: give them back. Then the first look finds what was notified in between."""
        conn.add_notify_handler(lambda _: self._notified.set())
        self._claim = Claim(conn)
        if not self._settings.durable_claims:
            conn.execute(query("commit_without_flush"))
            again = claims.take_up(conn, self._worker_id, self._dagster_run_id, self._held.claims())
            if again:
                self._log.warning("worker %d: the server forgot %d claims; made again", self._worker_id, len(again))
        conn.execute(query("listen_runs"))
        self._took_all = False
        lost = claims.give_back_unknown(conn, self._worker_id, self._held.claims())
        if lost:
            self._log.warning("worker %d: gave back %d runs of a claim that was cut off", self._worker_id, len(lost))

    def wake(self) -> None:
        """Look again at once: the worker stops, or there is room."""
        self._wake.set()

    def room(self) -> None:
        """Outcomes were written: claim again if that was waited for."""
        if self._waits_for_room:
            self._wake.set()

    def run(self) -> None:
        """Claim until the worker stops; for two threads at once."""
        try:
            while not self._stopping():
                alone = self._take_turn()
                if alone is not None:
                    self._hands.execute(alone)
        except GivenUp:
            pass

    def await_end(self) -> None:
        """Until nothing more is claimed. One of the threads may still execute a run."""
        with self._turn:
            pass

    def close(self) -> None:
        self._session.close()
        self._wake.close()

    def _take_turn(self) -> HeldRun | None:
        """Claim until the worker stops, or until there is a run for this thread."""
        self._spare.append(None)
        with self._turn:
            self._spare.pop()
            # Who gets its turn after the end would register the worker anew.
            if self._stopping():
                return None
            return self._session.call(self._claim_until_stopped, self._stopping)

    def _claim_until_stopped(self, conn: Connection) -> HeldRun | None:
        while not self._stopping():
            if self._took_all:
                self._took_all = False
                if not self._notified.is_set():
                    self._wait_for_runs(conn)
                    continue
            self._notified.clear()
            self._give_back_waiting(conn)
            want = self._want()
            if not want:
                self._wait_for_room(conn)
                continue
            was_idle = not len(self._held)
            claimed = self._claim(self._worker_id, self._dagster_run_id, want)
            self._took_all = len(claimed) < want
            if claimed:
                self._idle_since = monotonic()
                held = self._hold(claimed, full=not self._took_all)
                if len(held) == 1 and was_idle and self._spare:
                    return held[0]
                self._hands.give(held, self._pace.fast)
        return None

    def _want(self) -> int:
        """How many runs to claim now; none rather than a few while fast handlers work off the last batch."""
        room = self._pace.hold - len(self._held)
        enough = self._pace.batch // 2 if self._pace.fast else 1
        return min(self._pace.batch, room) if room >= enough else 0

    def _hold(self, claimed: list[Claimed], full: bool) -> list[HeldRun]:
        batch = Batch(full=full, left=len(claimed), claimed=monotonic())
        held = [HeldRun(run, batch) for run in claimed]
        for one in held:
            self._held.add(one)
        return held

    def _give_back_waiting(self, conn: Connection) -> None:
        """Give back what waited too long for a thread, so that other workers can claim it."""
        if monotonic() - self._hands.waiting_since() < WAIT_MOST_SECONDS:
            return
        waiting = self._hands.take_back()
        back = [(held.run.id, held.run.attempt) for held in waiting if self._held.end(held)]
        for held in waiting:
            self._held.forget(held)
        self._pace.slowed()
        claims.give_back(conn, self._worker_id, back)
        self._log.info("worker %d gave back %d runs that waited for a thread", self._worker_id, len(back))

    def _wait_most(self) -> float:
        """How long to wait at most: until the next poll, or until the next waiting run has waited too long."""
        waiting = self._hands.waiting_since() + WAIT_MOST_SECONDS - monotonic()
        return min(self._settings.poll_seconds, max(0.0, waiting))

    def _wait_for_room(self, conn: Connection) -> None:
        self._waits_for_room = True
        if not self._want():
            self._wake.wait(conn, Event(), HURRY_SECONDS if self._pace.fast else self._wait_most())
        self._waits_for_room = False
        self._hands.hurry()

    def _wait_for_runs(self, conn: Connection) -> None:
        # The thread that was just woken needs the interpreter now; all else here can wait.
        self._wake.wait(conn, self._notified, HAND_OVER_SECONDS)
        if self._notified.is_set() or self._stopping():
            return
        self._hands.hurry()
        due = claims.next_due_seconds(conn)
        wait = self._wait_most() if due is None else min(max(due, 0.05), self._wait_most())
        if self._held.open_count:
            self._idle_since = monotonic()
        else:
            linger = self._settings.linger_seconds - (monotonic() - self._idle_since)
            if linger <= 0:
                if self._surplus(conn):
                    return
                self._idle_since = monotonic()
                linger = self._settings.linger_seconds
            wait = min(wait, max(linger, LINGER_LOOK_SECONDS))
        self._wake.wait(conn, self._notified, wait)
