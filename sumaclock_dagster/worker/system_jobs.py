"""The thread that executes system jobs: it wakes at the next period by the database's clock and takes what is free.

One connection holds the locks of all that this worker executes; each job has a thread of its own. Without system jobs
there is neither, and between periods that are far apart there is no connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from time import monotonic

import psycopg

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.model import Done, Failed
from sumaclock_dagster.queue import system_jobs
from sumaclock_dagster.queue.system_jobs import Taken
from sumaclock_dagster.storable import ERROR_MAX_CHARS, clean_text, error_text, result_json
from sumaclock_dagster.system_jobs import SystemJob, SystemRun
from sumaclock_dagster.worker.config import WorkerConfig
from sumaclock_dagster.worker.dbclock import DatabaseClock
from sumaclock_dagster.worker.session import Session

# How soon a job is tried again that another session held: its worker may die.
AGAIN_SECONDS = 5.0
# While a job is executed, its connection is looked at this often.
WATCH_SECONDS = 5.0
# The database's clock may be moved meanwhile.
WAIT_MOST_SECONDS = 30.0
AWAY_SECONDS, AWAY_MOST_SECONDS = 1.0, 30.0
# A wait that ends a moment before the period would only have to be repeated.
AFTER_SECONDS = 0.01
GIVE_BACK_SECONDS = 3.0


@dataclass(slots=True)
class Executed:
    """What this worker executes, and how it ended. result: JSON text. raised: the error was raised. has_ended is set
    last, by the job's own thread."""

    taken: Taken
    run: SystemRun
    result: str | None = None
    error: str | None = None
    raised: bool = False
    has_ended: bool = False
    is_given_back: bool = False


class SystemJobs:
    """Takes periods until the worker claims nothing more, and ends when all that was taken has ended.

    is_retiring: whether to take nothing more. `stop` tells what is executed to end; `close` gives back what has not.
    """

    def __init__(
        self,
        config: WorkerConfig,
        worker_id: int,
        handlers: Handlers,
        clock: DatabaseClock,
        log: logging.Logger,
        is_retiring: Callable[[], bool],
    ) -> None:
        self._config = config
        self._session = Session(config.url, "sumaclock system jobs", log)
        self._worker_id = worker_id
        self._jobs = handlers.system_jobs
        self._clock = clock
        self._log = log
        self._is_retiring = is_retiring
        self._executing: dict[str, Executed] = {}
        self._nudged = Event()
        self._stopping = Event()
        self._closing = Event()
        self._ended = Event()
        self._holder: Connection | None = None
        self._next_epoch = 0.0
        self._again_at = 0.0

    @property
    def is_busy(self) -> bool:
        return bool(self._jobs) and not self._ended.is_set()

    def nudge(self) -> None:
        """Look at once whether the worker retires."""
        self._nudged.set()

    def stop(self) -> None:
        """Tell all that is executed to end."""
        self._stopping.set()
        self._nudged.set()

    def close(self) -> None:
        """Give back what has not ended. Its lock stays with this process as long as its thread lives."""
        if self.is_busy:
            self._closing.set()
            self._nudged.set()
            self._ended.wait(GIVE_BACK_SECONDS)

    def run(self) -> None:
        """The thread's work. A database that is away is waited for; what has ended is written when it is back."""
        away = 0.0
        while self._jobs and not (self._is_retiring() and not self._executing):
            try:
                wait, away = self._turn(), 0.0
            except psycopg.Error as error:
                wait = away = min(2 * away, AWAY_MOST_SECONDS) or AWAY_SECONDS
                self._log.warning("worker %d: system jobs wait: %s", self._worker_id, str(error).partition("\n")[0])
                self._session.close()
            self._nudged.wait(wait)
            self._nudged.clear()
        self._session.close()
        self._ended.set()

    def _turn(self) -> float:
        """Do what is to be done now. Returns the seconds until the next turn."""
        if self._stopping.is_set():
            for executed in self._executing.values():
                executed.run.cancelled.set()
        if self._executing:
            self._keep_locks()
            self._write_ends()
        if self._closing.is_set():
            self._give_back_all()
        elif not self._is_retiring() and self._is_time():
            self._look()
        waits = [WAIT_MOST_SECONDS, self._next_epoch - self._clock.epoch(monotonic()) + AFTER_SECONDS]
        if self._again_at:
            waits.append(self._again_at - monotonic())
        if self._executing:
            waits.append(WATCH_SECONDS)
        elif min(waits) >= WAIT_MOST_SECONDS:
            self._session.close()
        return max(0.0, min(waits))

    def _is_time(self) -> bool:
        again = bool(self._again_at) and monotonic() >= self._again_at
        return again or self._clock.epoch(monotonic()) >= self._next_epoch

    def _look(self) -> None:
        conn = self._session.connection()
        if self._executing and self._holder is not conn:
            # The locks of what is executed come first.
            self._again_at = monotonic() + AGAIN_SECONDS
            return
        # Read before the look, so that its own duration only makes the next turn come sooner.
        now, busy_elsewhere = self._clock.epoch(monotonic()), False
        looks = system_jobs.look(conn, self._jobs.values())
        for look in looks:
            if look.is_open and look.name not in self._executing:
                free, taken = system_jobs.take(conn, self._jobs[look.name], self._worker_id)
                busy_elsewhere = busy_elsewhere or not free
                if taken is not None:
                    self._holder = conn
                    self._begin(taken)
        self._next_epoch = now + min(look.next_seconds for look in looks)
        self._again_at = monotonic() + AGAIN_SECONDS if busy_elsewhere else 0.0

    def _begin(self, taken: Taken) -> None:
        job = self._jobs[taken.name]
        log = logging.LoggerAdapter(self._log, {"system_job": job.name})
        run = SystemRun(job.name, taken.period, job.every_seconds, taken.attempt, log)
        executed = self._executing[job.name] = Executed(taken, run)
        name = f"sumaclock-system-{job.name}"
        Thread(target=partial(self._execute, job, executed), name=name, daemon=True).start()

    def _execute(self, job: SystemJob, executed: Executed) -> None:
        """In the job's own thread. Whatever it returns or raises becomes storable, and says that it has ended."""
        try:
            value = job.function(executed.run)
            if isinstance(value, Failed):
                executed.error = clean_text(str(value.error), ERROR_MAX_CHARS)
            else:
                result = value.result if isinstance(value, Done) else value
                executed.result = result_json(result, self._config.settings.result_max_bytes)
        except BaseException as error:  # noqa: BLE001  (a SystemExit ends the job, too)
            executed.error, executed.raised = error_text(error), True
        finally:
            executed.has_ended = True
            self._nudged.set()

    def _keep_locks(self) -> None:
        """See that the connection with the locks lives. On a new one they are taken again; who lost one is told."""
        conn = self._session.connection()
        if conn is self._holder:
            conn.execute(query("read_backend"))
            return
        held = True
        for name, executed in self._executing.items():
            locked, lost = system_jobs.retake(conn, self._worker_id, executed.taken)
            if lost and not executed.run.cancelled.is_set():
                self._log.warning("system job %s went to another worker and is told to stop", name)
                executed.run.cancelled.set()
            held = held and (locked or lost)
        if held:
            self._holder = conn

    def _write_ends(self) -> None:
        conn = self._session.connection()
        for executed in [executed for executed in self._executing.values() if executed.has_ended]:
            if not executed.is_given_back:
                self._write(conn, executed)
            system_jobs.let_go(conn, executed.taken.name)
            del self._executing[executed.taken.name]
            # It may have overrun its period, and then the current one begins now.
            self._next_epoch = 0.0

    def _write(self, conn: Connection, executed: Executed) -> None:
        taken, name = executed.taken, executed.taken.name
        if executed.raised and self._stopping.is_set():
            system_jobs.give_back(conn, self._worker_id, taken)
            self._log.info("system job %s ended early, as its worker is stopped", name)
            return
        try:
            written = system_jobs.finish(conn, self._worker_id, taken, executed.result, executed.error)
        except psycopg.DataError as error:
            text = f"The result can't be stored: {clean_text(str(error), ERROR_MAX_CHARS)}"
            written = system_jobs.finish(conn, self._worker_id, taken, None, text)
        if not written:
            self._log.warning("system job %s had gone to another worker; its outcome is not written", name)
        elif executed.error is not None:
            self._log.error("system job %s failed: %s", name, executed.error)

    def _give_back_all(self) -> None:
        conn = self._session.connection()
        for executed in self._executing.values():
            if not executed.is_given_back:
                executed.is_given_back = True
                system_jobs.give_back(conn, self._worker_id, executed.taken)
                self._log.warning("system job %s did not end in the grace time", executed.taken.name)
        self._ended.set()
