"""Waiting a moment for what workers do right after a change: for people who look at the answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from sumaclock_dagster.db import Connection
from sumaclock_dagster.model import Run, RunStatus
from sumaclock_dagster.queue.runs import get_run
from sumaclock_dagster.queue.workers import live_workers
from sumaclock_dagster.tasks.api import get
from sumaclock_dagster.tasks.records import Task, TaskStatus

LOOK_SECONDS = 0.05
Found = TypeVar("Found")


def await_placed(conn: Connection, task_id: UUID, seconds: float) -> Task:
    """The task once it is placed or does not fire, at the latest after `seconds`. The change must be committed."""

    def look() -> tuple[Task, bool]:
        task = get(conn, task_id)
        return task, not is_to_be_placed(task)

    return _await(look, seconds)


def is_to_be_placed(task: Task) -> bool:
    """Whether a worker is about to place the task, or would if one lived."""
    return task.status is TaskStatus.ACTIVE and task.next_run_at is None and task.deleted_at is None


def await_run(conn: Connection, run_id: int, seconds: float) -> Run:
    """The run once it has ended, at the latest after `seconds`."""

    def look() -> tuple[Run, bool]:
        run = get_run(conn, run_id)
        return run, run.finished_at is not None

    return _await(look, seconds)


def why_it_waits(conn: Connection, run: Run | None = None) -> str:
    """What keeps a change, or a run, waiting."""
    if run is not None and run.status is RunStatus.RUNNING:
        dagster_run = f" in Dagster run {run.dagster_run_id}" if run.dagster_run_id else ""
        return f"It is being executed{dagster_run}."
    if live_workers(conn):
        return "The workers have not come to it yet."
    return "No worker is alive; it waits until one starts (`bin/up`, or the Dagster sensor pending_runs)."


def _await(look: Callable[[], tuple[Found, bool]], seconds: float) -> Found:
    give_up_at = time.monotonic() + seconds
    while True:
        found, over = look()
        if over or time.monotonic() >= give_up_at:
            return found
        threading.Event().wait(LOOK_SECONDS)
