"""A worker: its threads, its start and its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic

import psycopg

from sumaclock_dagster.db import Connection
from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.model import FlushReport
from sumaclock_dagster.queue import claims, workers
from sumaclock_dagster.worker.claimer import WAIT_MOST_SECONDS, Claimer
from sumaclock_dagster.worker.config import WorkerConfig
from sumaclock_dagster.worker.dbclock import DatabaseClock
from sumaclock_dagster.worker.finisher import Finisher
from sumaclock_dagster.worker.hands import Hands
from sumaclock_dagster.worker.held import HeldRun, HeldRuns
from sumaclock_dagster.worker.keeper import Keeper, Timekeeper
from sumaclock_dagster.worker.pace import Pace
from sumaclock_dagster.worker.session import GivenUp, Session
from sumaclock_dagster.worker.system_jobs import SystemJobs
from sumaclock_dagster.worker.tally import Tally

FLUSH_AFTER_GRACE_SECONDS = 5.0
OWED_RETRY_SECONDS = 1.0


class Worker:
    """Claims and executes runs, and system jobs, until its life is over, it is stopped, or it is one too many.

    `start` returns once the worker lives in the database. `stop` may be called from any thread and any number of
    times. `wait` tells whether it has ended; `failure` is then what broke it, or None.
    """

    def __init__(self, config: WorkerConfig, handlers: Handlers, log: logging.Logger) -> None:
        self._config = config
        self._settings = config.settings
        self._handlers = handlers
        self._log = log
        self._held = HeldRuns()
        self._clock = DatabaseClock()
        self._tally = Tally()
        self._pace = Pace(self._settings.claim_batch, self._settings.claim_batch_max, self._settings.handler_threads)
        self._no_more_claims = threading.Event()
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._stop_deadline = float("inf")
        self._backend_pid: int | None = None
        self._owed: list[tuple[int, int]] = []
        self.end_reason = ""
        self.failure: BaseException | None = None
        self.worker_id = 0

    def start(self) -> None:
        """Register and start the threads. Raises psycopg.Error or SumaclockError when it can't."""
        settings = self._settings
        keeping = Session(self._config.url, "sumaclock worker keeper", self._log)
        conn = keeping.connection()
        self._clock.set(workers.read_clock(conn))
        requested = self._config.worker_id
        self.worker_id = workers.request_worker(conn, self._config.code_version) if requested is None else requested

        self._session = Session(self._config.url, "sumaclock worker", self._log, self._opened)
        self._finishing = Session(self._config.url, "sumaclock worker outcomes", self._log)
        self._finisher = Finisher(
            self._finishing,
            self.worker_id,
            self._handlers,
            self._held,
            self._clock,
            self._pace,
            self._tally,
            self._log,
            self._out_of_time,
            lambda: self._claimer.room(),
            self._thread,
        )
        self._hands = Hands(
            settings.handler_threads,
            self._handlers,
            self._held,
            self._finisher.put,
            lambda: self._claimer.room(),
            settings.no_handler_message,
            settings.result_max_bytes,
        )
        self._claimer = Claimer(
            self._session,
            self.worker_id,
            self._config.dagster_run_id,
            settings,
            self._held,
            self._hands,
            self._pace,
            self._log,
            self._no_more_claims.is_set,
            lambda conn: self._surplus(conn, settings.min_workers),
        )
        self._keeper = Keeper(
            keeping,
            self.worker_id,
            settings,
            self._held,
            self._clock,
            self._log,
            self._retire,
            self._no_more_claims.is_set,
        )
        retiring = self._no_more_claims.is_set
        self._system = SystemJobs(self._config, self.worker_id, self._handlers, self._clock, self._log, retiring)
        timekeeper = Timekeeper(self._handlers, self._held, self._timed_out)
        conn = self._session.connection()
        if requested is not None:
            # What was requested long ago may have been replaced meanwhile.
            self._surplus(conn, settings.max_workers)
        self._finisher.start()
        self._hands.start()
        for _ in range(2):
            self._thread("claimer", self._claimer.run)
        self._thread("keeper", lambda: self._keeper.run(self._ended))
        self._thread("timekeeper", lambda: timekeeper.run(self._ended))
        self._thread("system jobs", self._system.run)
        self._thread("worker", self._live)

    def stop(self, reason: str) -> None:
        """Claim nothing more, give handlers the grace time, give back the rest, end."""
        if not self._stopped.is_set():
            self._stop_deadline = monotonic() + self._settings.grace_seconds
            self._stopped.set()
            self._system.stop()
        self._retire(reason)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """True when the worker has ended."""
        return self._ended.wait(timeout_seconds)

    def take_report(self) -> FlushReport | None:
        """What was executed since the last call, or None."""
        return self._tally.take()

    def _retire(self, reason: str) -> None:
        if not self._no_more_claims.is_set():
            self.end_reason = reason
            self._no_more_claims.set()
            self._log.info("worker %d claims nothing more: %s", self.worker_id, reason)
            self._keeper.nudge()
            self._system.nudge()
        self._claimer.wake()

    def _live(self) -> None:
        self._no_more_claims.wait()
        self._claimer.await_end()
        self._await_handlers()
        self._let_go(self._held.open())
        self._system.close()
        self._finisher.close()
        self._try(self._finishing, self._say_goodbye, self._out_of_time)
        self._hands.stop()
        self._claimer.close()
        self._finishing.close()
        self._ended.set()
        self._keeper.nudge()

    def _await_handlers(self) -> None:
        """Until every handler has ended or, once stopped, the grace time is over. What has not begun when the worker
        is stopped, or does not begin soon, goes back at once."""
        tick, again_at = threading.Event(), 0.0
        self._hands.hurry()
        while (self._held.open_count or self._system.is_busy) and monotonic() < self._stop_deadline:
            if self._stopped.is_set() or monotonic() - self._hands.waiting_since() > WAIT_MOST_SECONDS:
                self._let_go(self._hands.take_back())
            if self._owed and monotonic() >= again_at:
                again_at = monotonic() + OWED_RETRY_SECONDS
                self._try(self._session, self._give_back_owed, lambda: True)
            tick.wait(0.02)

    def _let_go(self, unfinished: list[HeldRun]) -> None:
        for held in unfinished:
            if self._held.end(held):
                held.cancelled.set()
                self._owed.append((held.run.id, held.run.attempt))
            self._held.forget(held)

    def _give_back_owed(self, conn: Connection) -> None:
        if self._owed:
            back = claims.give_back(conn, self.worker_id, self._owed)
            self._log.info("worker %d gave back %d unfinished runs", self.worker_id, len(back))
            self._owed.clear()

    def _say_goodbye(self, conn: Connection) -> None:
        self._give_back_owed(conn)
        workers.end(conn, self.worker_id)

    def _try(self, session: Session, action: Callable[[Connection], None], give_up: Callable[[], bool]) -> None:
        try:
            session.call(action, give_up)
        except (GivenUp, psycopg.Error) as error:
            self._log.warning("worker %d has %d runs to give back, but: %s", self.worker_id, len(self._owed), error)

    def _opened(self, conn: Connection) -> None:
        config = self._config
        registered = workers.register(
            conn,
            self.worker_id,
            code_version=config.code_version,
            dagster_run_id=config.dagster_run_id,
            host=config.host,
            pid=config.pid,
            life_seconds=self._settings.worker_life_seconds,
        )
        if not registered:
            if self._backend_pid is not None:
                workers.end_old_session(conn, self.worker_id, self._backend_pid)
            raise psycopg.OperationalError(
                f"worker {self.worker_id} is unknown, or another session still holds its lock"
            )
        self._backend_pid = conn.info.backend_pid
        self._claimer.opened(conn)

    def _surplus(self, conn: Connection, keep: int) -> bool:
        if not workers.leave_if_surplus(conn, self.worker_id, self._settings, keep):
            return False
        self._retire("there are enough workers without it")
        return True

    def _timed_out(self, held: HeldRun) -> None:
        self._finisher.put(held)
        self._hands.add_thread()
        self._retire(f"the handler of run {held.run.id} timed out and its thread can't be stopped")

    def _out_of_time(self) -> bool:
        return self._stopped.is_set() and monotonic() > self._stop_deadline + FLUSH_AFTER_GRACE_SECONDS

    def _thread(self, name: str, target: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                target()
            except Exception as error:  # noqa: BLE001  (a worker with a broken part must end, not live on half)
                self._log.exception("worker %d: its %s broke", self.worker_id, name)
                self.failure = error
                self.stop(f"its {name} broke: {type(error).__name__}")
                if name == "worker":
                    self._ended.set()

        thread = threading.Thread(target=guarded, name=f"sumaclock-{name}", daemon=True)
        thread.start()
        return thread
