"""A delivery run: sends what is due and leaves the next run behind."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import monotonic
from uuid import UUID, uuid4

from sumaclock_dagster.db import Connection
from sumaclock_dagster.handlers import CancelFlag
from sumaclock_dagster.outbox import line
from sumaclock_dagster.outbox.answers import Reply, Verdict
from sumaclock_dagster.outbox.line import Delivery
from sumaclock_dagster.settings import Settings

Log = logging.LoggerAdapter[logging.Logger]

# Short enough for a worker's grace time at its end; what is left is the next run's.
CLAIM_FOR_SECONDS = 8.0
LOOK_SECONDS = 0.2
# From when the next run takes over, should this one end without a word.
TAKE_OVER_SECONDS = line.UNSEEN_SECONDS + 5.0
# Nothing could be begun although something is due: somebody holds its row.
STUCK_SECONDS = 0.25
BACKOFF_FIRST_SECONDS = 2.0
TRIES_BEFORE_GIVING_UP = 10
# An attempt that nobody has heard of for this long beyond its own time was lost with its worker.
LEASE_SLACK_SECONDS = 20.0


@dataclass(slots=True)
class Tally:
    """What a delivery run did: attempts by their outcome. refused: another run was sending, so this one left."""

    done: int = 0
    failed: int = 0
    again: int = 0
    lost: int = 0
    refused: bool = False

    @property
    def attempts(self) -> int:
        return self.done + self.failed + self.again + self.lost


class Sending:
    """One delivery run. Decisions are made in short transactions that begin with the line's lock; requests are made
    between them, in threads, while no transaction is open."""

    def __init__(
        self, conn: Connection, send: Callable[[Delivery], Reply], settings: Settings, log: Log, rng: random.Random
    ) -> None:
        self._conn = conn
        self._send = send
        self._settings = settings
        self._log = log
        self._rng = rng
        self._me: UUID = uuid4()
        self._tally = Tally()
        self._flight: dict[Future[Reply], Delivery] = {}
        self._asked_for_next = False

    def run(self, cancelled: CancelFlag) -> Tally:
        """Send until nothing is due, or the run's time is over, or `cancelled` is set; attempts that are under way then
        are left to their leases."""
        until = monotonic() + CLAIM_FOR_SECONDS
        hands = ThreadPoolExecutor(self._settings.core_api_concurrency, thread_name_prefix="sumaclock-delivery")
        try:
            while True:
                over = cancelled.is_set()
                begun = self._look(claiming=not over and monotonic() < until, leaving=over)
                for delivery in begun:
                    self._flight[hands.submit(self._send, delivery)] = delivery
                if over or not self._flight:
                    return self._tally
                wait(self._flight, LOOK_SECONDS, FIRST_COMPLETED)
        finally:
            hands.shutdown(wait=False, cancel_futures=True)

    def _look(self, claiming: bool, leaving: bool) -> list[Delivery]:
        ended = [future for future in self._flight if future.done()]
        with self._conn.transaction():
            ours = line.take(self._conn, self._me)
            for future in ended:
                self._record(self._flight[future], future.result())
            state = line.read(self._conn, self._settings.core_api_concurrency)
            begun = (
                line.claim(self._conn, state, state.room, self._lease_seconds)
                if claiming and ours and state.room
                else []
            )
            if not begun and (leaving or len(self._flight) == len(ended)):
                self._leave(ours, claiming, state)
            elif not self._asked_for_next:
                line.leave_next_run(self._conn, TAKE_OVER_SECONDS)
                self._asked_for_next = True
        for future in ended:
            del self._flight[future]
        return begun

    def _leave(self, ours: bool, claiming: bool, state: line.Line) -> None:
        if not ours:
            self._tally.refused = True
            line.leave_next_run(self._conn, line.UNSEEN_SECONDS)
            return
        line.release(self._conn, self._me)
        if not claiming:
            line.leave_next_run(self._conn, 0.0)
        elif state.room == 0 and state.room_in_seconds is not None:
            line.leave_next_run(self._conn, state.room_in_seconds)
        else:
            line.leave_next_run(self._conn, STUCK_SECONDS)

    def _record(self, delivery: Delivery, reply: Reply) -> None:
        status, error, delay = self._outcome(delivery, reply)
        written = line.record(
            self._conn,
            delivery,
            status=status,
            http_status=reply.status,
            error=error,
            response=reply.response,
            delay_seconds=delay,
        )
        self._count(delivery, status if written else "lost", error)
        if reply.verdict is Verdict.AGAIN:
            # One job that core-api can't take must not close the line for all, so only its first attempt counts.
            line.note_failure(
                self._conn,
                counts=reply.away or delivery.attempt == 1,
                at_once=reply.status == 503 and reply.retry_after_seconds > 0,
                retry_after_seconds=reply.retry_after_seconds,
            )
        else:
            line.note_success(self._conn)

    def _outcome(self, delivery: Delivery, reply: Reply) -> tuple[str, str | None, float]:
        if reply.verdict is Verdict.DONE:
            return "done", None, 0.0
        if reply.verdict is Verdict.FINAL:
            return "failed", reply.error, 0.0
        old = delivery.age_seconds >= self._settings.core_api_give_up_seconds
        if old and delivery.attempt >= TRIES_BEFORE_GIVING_UP:
            days = delivery.age_seconds / 86_400
            return "failed", f"Given up after {delivery.attempt} attempts in {days:.1f} days: {reply.error}", 0.0
        return "pending", reply.error, self._delay(delivery.attempt, reply.retry_after_seconds)

    def _delay(self, attempt: int, retry_after_seconds: float) -> float:
        """Full jitter: anything up to the exponential backoff. What core-api asked for is never undercut, and those who
        were told the same come back one by one."""
        longest = min(BACKOFF_FIRST_SECONDS * 2.0 ** min(attempt - 1, 30), self._settings.core_api_backoff_max_seconds)
        spread = retry_after_seconds * (1 + 0.1 * self._rng.random())
        return max(self._rng.uniform(0, longest), spread)

    def _count(self, delivery: Delivery, outcome: str, error: str | None) -> None:
        who = f"Core-api job {delivery.id} ({delivery.idempotency_key}), attempt {delivery.attempt}"
        match outcome:
            case "done":
                self._tally.done += 1
            case "failed":
                self._tally.failed += 1
                self._log.error("%s: %s", who, error)
            case "pending":
                self._tally.again += 1
                self._log.warning("%s: %s", who, error)
            case _:
                self._tally.lost += 1
                self._log.warning("%s was taken for lost; its outcome is dropped.", who)

    @property
    def _lease_seconds(self) -> float:
        return 2 * self._settings.core_api_timeout_seconds + LEASE_SLACK_SECONDS
