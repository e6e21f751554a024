"""The cron kinds by which workers settle tasks and answer previews."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.errors import LockNotAvailable
from psycopg_pool import ConnectionPool

from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection, make_pool
from sumaclock_dagster.handlers import HandlerRun, Handlers
from sumaclock_dagster.launches.requests import hand_over
from sumaclock_dagster.model import Failed, Handed, Outcome, RetryLater, Skip, SumaclockError
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.storable import error_text
from sumaclock_dagster.tasks.access import load_access_check
from sumaclock_dagster.tasks.align import align, align_together
from sumaclock_dagster.tasks.execute import Executed, TransactionEnded, TryAgain, backoff
from sumaclock_dagster.tasks.kinds import TaskKinds, load_task_kinds
from sumaclock_dagster.tasks.previews import answer_previews
from sumaclock_dagster.tasks.settle import Rules, settle
from sumaclock_dagster.tasks.together import settle_together

AI_TASK = "ai_task"
PREVIEW_SCHEDULES = "preview_schedules"
# Attempts are counted here: a task kind has its own policy, and what is away another.
ATTEMPTS_MOST = 1000
MOST_TOGETHER = 500


class Doors:
    """This process's connections for tasks, each made when it is first needed. Threads share them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._pool: ConnectionPool[Connection] | None = None
        self._clock: Clock | None = None

    def app(self) -> ConnectionPool[Connection]:
        with self._lock:
            if self._pool is None:
                self._pool = make_pool(
                    self._settings.app_url, "sumaclock tasks", self._settings.handler_threads, "limit_task_session"
                )
            return self._pool

    def clock(self, conn: Connection) -> Clock:
        with self._lock:
            if self._clock is None:
                self._clock = open_clock(conn, self._settings.cron_url, self._settings.clock)
            return self._clock

    def close(self) -> None:
        with self._lock:
            if self._clock is not None:
                self._clock.close()
            if self._pool is not None:
                self._pool.close()
            self._clock = self._pool = None


def task_handlers(settings: Settings, own: TaskKinds, doors: Doors | None = None) -> Handlers:
    """A new registry of the cron kinds `ai_task` and `preview_schedules`. `own`: the task kinds besides those that the
    settings name. Connects to nothing. Raises SumaclockError for task kinds or an access check that don't load."""
    handlers = Handlers()
    opened = doors or Doors(settings)
    rules = Rules(
        load_task_kinds(settings.task_kinds, own), load_access_check(settings.access_check), settings.result_max_bytes
    )

    @handlers.register(AI_TASK, max_attempts=ATTEMPTS_MOST)
    def ai_task(run: HandlerRun) -> Outcome:
        try:
            with opened.app().connection() as conn:
                outcome = _settle(conn, run, rules)
                align(conn, opened.clock(conn), run.job_id)
                return _handed_over(conn, run, outcome)
        except TryAgain as again:
            return again.outcome
        except Exception as error:  # noqa: BLE001  (what is away may come back; the app's hook may raise anything)
            return _later(settings, run, error)

    @handlers.register_of_many(AI_TASK)
    def ai_tasks(runs: Sequence[HandlerRun]) -> list[Outcome | None]:
        ends: list[Outcome | None] = []
        with opened.app().connection() as conn:
            for start in range(0, len(runs), MOST_TOGETHER):
                some = runs[start : start + MOST_TOGETHER]
                outcomes = settle_together(conn, some, rules)
                jobs = [run.job_id for run in some if run.id in outcomes]
                aligned = align_together(conn, opened.clock(conn), jobs)
                for run in some:
                    is_settled = run.id in outcomes and run.job_id in aligned
                    ends.append(_handed_over(conn, run, outcomes[run.id]) if is_settled else None)
        return ends

    @handlers.register(PREVIEW_SCHEDULES, max_attempts=5)
    def preview_schedules(_: HandlerRun) -> Any:
        with opened.app().connection() as conn:
            return {"answered": answer_previews(conn)}

    return handlers


def _handed_over(conn: Connection, run: HandlerRun, outcome: Outcome) -> Outcome:
    """Not before the clock job is right: nobody comes back to it once the run is Dagster's."""
    if isinstance(outcome, Handed) and not hand_over(conn, run.id, run.attempt):
        return Skip("A Dagster run that another run asked for executes this occurrence.")
    return outcome


def _settle(conn: Connection, run: HandlerRun, rules: Rules) -> Outcome:
    try:
        return settle(conn, run, rules)
    except TransactionEnded as error:
        # Executing it again would do again what it committed, so the occurrence is recorded as failed.
        with suppress(psycopg.Error):
            conn.rollback()
        return settle(conn, run, rules, Executed("failed", error=str(error)))


def _later(settings: Settings, run: HandlerRun, error: Exception) -> Outcome:
    text = _said(error)
    if run.attempt >= settings.task_attempts:
        return Failed(f"Given up after {run.attempt} attempts to settle the task: {text}")
    run.log.warning("settling the task failed: %s", text.partition("\n")[0])
    delay = backoff(settings.task_backoff_seconds, settings.task_backoff_max_seconds, run.attempt)
    return RetryLater(delay, text)


def _said(error: Exception) -> str:
    if isinstance(error, LockNotAvailable):
        return "Another session has held the task's row for 10 s."
    return str(error) if isinstance(error, SumaclockError | psycopg.OperationalError) else error_text(error)
