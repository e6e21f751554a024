"""The thread that writes outcomes: batched, within 100 ms of the handler's end, and none lost for another's sake."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic

import psycopg

from sumaclock_dagster.db import Connection
from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.model import Failed, FiringLine, Policy
from sumaclock_dagster.queue import claims
from sumaclock_dagster.queue.claims import Ended, HandedOver, Retried
from sumaclock_dagster.worker.dbclock import DatabaseClock
from sumaclock_dagster.worker.held import HeldRun, HeldRuns
from sumaclock_dagster.worker.pace import Pace
from sumaclock_dagster.worker.session import GivenUp, Session
from sumaclock_dagster.worker.tally import Tally
from sumaclock_dagster.worker.verdict import Verdict, verdict

BATCH_MAX = 1000
# While other handlers are at work, their outcomes may share this one's commit.
GATHER_SECONDS = 0.005
NO_POLICY = Policy()
Judged = tuple[HeldRun, Verdict]


class Finisher:
    def __init__(
        self,
        session: Session,
        worker_id: int,
        handlers: Handlers,
        held: HeldRuns,
        clock: DatabaseClock,
        pace: Pace,
        tally: Tally,
        log: logging.Logger,
        give_up: Callable[[], bool],
        flushed: Callable[[], None],
        spawn: Callable[[str, Callable[[], None]], threading.Thread],
    ) -> None:
        self._session = session
        self._worker_id = worker_id
        self._handlers = handlers
        self._held = held
        self._clock = clock
        self._pace = pace
        self._tally = tally
        self._log = log
        self._give_up = give_up
        self._flushed = flushed
        self._queue: SimpleQueue[Judged | None] = SimpleQueue()
        self._spawn = spawn

    def start(self) -> None:
        self._thread = self._spawn("finisher", self._run)

    def put(self, held: HeldRun) -> None:
        """Take over a run whose outcome is set. What becomes of it is made up here, in the thread that executed it:
        the one that writes is what a busy worker waits for."""
        self._queue.put((held, self._verdict(held)))

    def close(self) -> None:
        """Write what is left and end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        # So that the first outcome finds a connection; without one, it will be tried again then.
        with suppress(psycopg.Error):
            self._session.connection()
        closing = False
        while not closing:
            batch, closing = self._gather()
            if batch:
                self._flush(batch)
                self._flushed()

    def _gather(self) -> tuple[list[Judged], bool]:
        batch: list[Judged] = []
        item = self._queue.get()
        until = monotonic() + GATHER_SECONDS
        while item is not None:
            batch.append(item)
            if len(batch) >= BATCH_MAX:
                return batch, False
            try:
                item = self._queue.get_nowait()
            except Empty:
                wait = until - monotonic()
                if wait <= 0 or not self._held.open_count:
                    return batch, False
                try:
                    item = self._queue.get(timeout=wait)
                except Empty:
                    return batch, False
        return batch, True

    def _flush(self, batch: list[Judged]) -> None:
        try:
            kept = self._write([v for _, v in batch])
        except GivenUp:
            self._log.error(
                "The database is away and the worker's time is over: %d outcomes are not written; their "
                "runs will be released and executed again.",
                len(batch),
            )
            kept = set()
        for held, v in batch:
            self._held.forget(held)
            self._learn(held)
            self._count(held, v, v.id in kept)

    def _verdict(self, held: HeldRun) -> Verdict:
        registered = self._handlers.find(held.run.kind)
        outcome = held.outcome if held.outcome is not None else Failed("The worker lost the outcome of this run.")
        return verdict(
            held,
            outcome,
            registered.policy if registered else NO_POLICY,
            self._clock.epoch(held.started),
            self._clock.epoch(held.ended),
        )

    def _write(self, verdicts: list[Verdict]) -> set[int]:
        ended = sorted((v for v in verdicts if isinstance(v, Ended)), key=lambda v: v.id)
        retried = sorted((v for v in verdicts if isinstance(v, Retried)), key=lambda v: v.id)
        kept = {v.id for v in verdicts if isinstance(v, HandedOver)}
        if ended:
            kept |= self._write_ended(ended)
        if retried:
            kept |= self._call(lambda conn: claims.retry(conn, self._worker_id, retried))
        for v in verdicts:
            if v.id not in kept:
                self._log.warning(
                    "run %d: its claim (attempt %d) was lost to another; its outcome is dropped.", v.id, v.attempt
                )
        return kept

    def _write_ended(self, ended: list[Ended]) -> set[int]:
        try:
            return self._write_all(ended)
        except (psycopg.Error, ValueError):
            return self._write_one_by_one(ended)

    def _write_one_by_one(self, ended: list[Ended]) -> set[int]:
        kept: set[int] = set()
        for one in ended:
            try:
                kept |= self._write_all([one])
            except (psycopg.Error, ValueError) as error:
                self._log.warning("run %d: its outcome can't be stored as it is: %s", one.id, type(error).__name__)
                kept |= self._write_bare(one, type(error).__name__)
        return kept

    def _write_bare(self, one: Ended, because: str) -> set[int]:
        result = json.dumps({"unstorable": "result", "because": because}) if one.result is not None else None
        error = f"The error can't be stored: {because}." if one.error is not None else None
        bare = Ended(one.id, one.attempt, one.status, one.started, one.finished, result, error)
        try:
            return self._write_all([bare])
        except psycopg.Error:
            self._log.exception("run %d: its outcome can't be written; it will be released", one.id)
            return set()

    def _write_all(self, ended: list[Ended]) -> set[int]:
        return self._call(lambda conn: claims.finish(conn, self._worker_id, ended))

    def _call(self, action: Callable[[Connection], set[int]]) -> set[int]:
        return self._session.call(action, self._give_up)

    def _learn(self, held: HeldRun) -> None:
        batch = held.batch
        batch.left -= 1
        if batch.left == 0:
            self._pace.ended(batch.full, held.ended - batch.claimed)

    def _count(self, held: HeldRun, v: Verdict, kept: bool) -> None:
        run = held.run
        outcome = "claim lost" if not kept else "retry" if isinstance(v, Retried) else v.status
        lateness = self._clock.epoch(held.started) - run.scheduled_at.timestamp()
        self._tally.add(run.kind, outcome, lateness, lambda: _line(held, v.error, outcome, lateness))


def _line(held: HeldRun, error: str | None, outcome: str, lateness_seconds: float) -> FiringLine:
    run = held.run
    return FiringLine(
        run_id=run.id,
        job_id=run.job_id,
        kind=run.kind,
        organization_id=run.organization_id,
        user_id=run.user_id,
        scheduled_at=run.scheduled_at,
        lateness_seconds=lateness_seconds,
        duration_seconds=held.ended - held.started,
        attempt=run.attempt,
        outcome=outcome,
        error=error,
    )
