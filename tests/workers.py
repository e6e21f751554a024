"""What the worker's tests share: jobs, runs, workers in this process, and what the database says of them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg.types.json import Jsonb

from sumaclock_dagster.db import Connection
from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.queue.claims import Claim, Claimed
from sumaclock_dagster.queue.runs import get_run
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.worker import Worker, WorkerConfig
from tests.conftest import AppDatabase
from tests.waiting import until

FAST = {"heartbeat_seconds": 0.2, "dead_session_seconds": 1.0, "poll_seconds": 1.0, "grace_seconds": 2.0}


def add_job(app: Connection, kind: str, payload: Any = None, enabled: bool = True) -> uuid.UUID:
    row = app.execute(
        "insert into sumaclock.cron_jobs (kind, organization_id, user_id, payload, schedule, enabled)"
        " values (%s, 'acme', 'ada', %s, '0 0 1 1 *', %s) returning id",
        [kind, Jsonb(payload if payload is not None else {}), enabled],
    ).fetchone()
    assert row is not None
    return row[0]


def add_runs(app: Connection, job: uuid.UUID, count: int = 1) -> list[int]:
    """Write `count` runs as one firing's transaction would, and notify."""
    with app.transaction():
        rows = app.execute(
            "insert into sumaclock.cron_runs (job_id) select %s from generate_series(1, %s) returning id", [job, count]
        ).fetchall()
        app.execute("notify cron_runs")
    return [row[0] for row in rows]


def claim(conn: Connection, worker_id: int, batch: int) -> list[Claimed]:
    """Claim as a worker does, once."""
    once = Claim(conn)
    try:
        return once(worker_id, None, batch)
    finally:
        conn.execute("deallocate sumaclock_claim")


def make_effects(superuser: Connection) -> None:
    superuser.execute(
        "create table public.effects (run_id bigint, attempt int, pid int, at timestamptz default now());"
        "grant select, insert on public.effects to public"
    )


def effects(conn: Connection) -> dict[int, int]:
    """How often each run's handler was executed."""
    return dict(conn.execute("select run_id, count(*) from public.effects group by 1").fetchall())


def statuses(app: Connection) -> dict[str, int]:
    return dict(app.execute("select status::text, count(*) from sumaclock.cron_runs group by 1").fetchall())


def await_ended(app: Connection, run_ids: list[int], timeout_seconds: float = 15) -> None:
    def open_runs() -> list[Any]:
        return app.execute(
            "select id, status::text, attempts, error from sumaclock.cron_runs"
            " where id = any(%s) and finished_at is null limit 5",
            [run_ids],
        ).fetchall()

    try:
        until(lambda: not open_runs(), timeout_seconds, "the end of runs")
    except AssertionError as error:
        raise AssertionError(f"{error} Open: {open_runs()}; all: {statuses(app)}") from None


def await_status(app: Connection, run_id: int, status: str, timeout_seconds: float = 15) -> None:
    until(lambda: get_run(app, run_id).status.value == status, timeout_seconds, f"run {run_id} to be {status}")


def make_worker(app_db: AppDatabase, handlers: Handlers, worker_id: int | None = None, **settings: Any) -> Worker:
    values: Settings = app_db.settings.model_copy(update={**FAST, **settings})
    config = WorkerConfig.from_settings(
        values, worker_id=worker_id, dagster_run_id=str(uuid.uuid4()), code_version="test"
    )
    return Worker(config, handlers, logging.getLogger("sumaclock.test"))


@contextmanager
def running(app_db: AppDatabase, handlers: Handlers, **settings: Any) -> Iterator[Worker]:
    """A worker in this process, stopped at the end."""
    worker = make_worker(app_db, handlers, **settings)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop("the test is over")
        assert worker.wait(20), "the worker did not end"
    assert worker.failure is None
