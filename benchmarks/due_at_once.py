"""Many tasks, or jobs of a no-op kind, due in the same minute: when does the first start, when the last?

    python benchmarks/due_at_once.py [--tasks 1000] [--raw] [--workers 1] [--clock jobs|slots]

On a private cluster of its own in a temporary folder, with real pg_cron and all defaults (durable commits). Each task
is made by `sumaclock.create_task` and placed by the workers, which are processes; pg_cron fires them at the minute. A
start is the task run's `started_at` by the database's clock: the task is locked and about to be executed. With --raw
they are jobs without a task, placed by a sync, and a start is that of the handler. A run is written when another
session sees it.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ground import private_cluster

from sumaclock_dagster.calendar import pg_cron_for
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.embedded.configuration import ClusterFile
from sumaclock_dagster.migrate import load_migrations, migrate
from sumaclock_dagster.model import ClockMode
from sumaclock_dagster.own_handlers import own_handlers
from sumaclock_dagster.queue.workers import live_workers
from sumaclock_dagster.reconcile.sync import sync
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.worker import Worker, WorkerConfig

CREATE = """
    select sumaclock.create_task(organization_id => 'bench', user_id => 'bench', kind => 'log', instant => %s)
    from generate_series(1, %s)"""
# A firing that is over a minute late carries a later minute.
WRITTEN = "select count(*) from sumaclock.cron_runs where trigger = 'clock' and scheduled_at >= %s"
UNENDED = "select count(*) from sumaclock.cron_runs where finished_at is null"
CREATE_RAW = """
    insert into sumaclock.cron_jobs (kind, organization_id, user_id, schedule)
    select 'noop', 'bench', 'bench', %s from generate_series(1, %s)"""
STARTS = """
    select count(*), count(distinct task_id),
           min(extract(epoch from started_at - scheduled_for))::float8,
           percentile_cont(0.5) within group (order by extract(epoch from started_at - scheduled_for)),
           max(extract(epoch from started_at - scheduled_for))::float8
    from sumaclock.ai_task_runs where scheduled_for = %s"""
RAW_STARTS = """
    select count(*), count(distinct job_id), min(late), percentile_cont(0.5) within group (order by late), max(late)
    from (select r.job_id, (r.result ->> 'at')::float8 - extract(epoch from d.minute)::float8 as late
          from (select %s::timestamptz as minute) d join sumaclock.cron_runs r on r.scheduled_at >= d.minute
          where r.trigger = 'clock' and r.status = 'done') r"""
FIRINGS = """
    select min(extract(epoch from r.due_at - d.minute))::float8, max(extract(epoch from r.due_at - d.minute))::float8
    from (select %s::timestamptz as minute) d join sumaclock.cron_runs r on r.scheduled_at >= d.minute
    where r.trigger = 'clock'"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--clock", choices=("jobs", "slots"), default="jobs")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(Settings(**json.loads(arguments.work)))
        return
    with private_cluster() as (_, file):
        measure(file, arguments.tasks, arguments.workers, arguments.clock, raw=arguments.raw)


def work(settings: Settings) -> None:
    logging.basicConfig(level=logging.WARNING)
    config = WorkerConfig.from_settings(settings, worker_id=None, dagster_run_id=None, code_version="bench")
    handlers = own_handlers(settings)
    # Database and workers are on one machine here, so they have one clock.
    handlers.register("noop")(lambda _: {"at": time.time()})
    worker = Worker(config, handlers, logging.getLogger("bench"))
    worker.start()
    worker.wait()


def measure(file: ClusterFile, tasks: int, workers: int, clock: ClockMode, *, raw: bool) -> None:
    with at_work(file, workers, clock), connect(file.database_url, "bench") as app:
        print(f"{tasks} {'jobs' if raw else 'tasks'}, {workers} workers, clock {clock}")
        with open_clock(app, file.cron_database_url, clock) as opened:
            figures = fire(app, tasks, opened if raw else None)
        print(f"created in {figures.created:.1f} s, all placed {figures.placed:.1f} s later")
        print(f"fired by pg_cron from {figures.fired_first:.2f} to {figures.fired_last:.2f} s after the minute")
        print(f"all runs written {figures.written:.2f} s after the minute")
        starts = (figures.first, figures.median, figures.last)
        print("started: first {:.2f} s, median {:.2f} s, last {:.2f} s after the minute".format(*starts))
        print(f"runs: {figures.runs}, of {figures.tasks}")


@contextmanager
def at_work(file: ClusterFile, workers: int, clock: str) -> Iterator[None]:
    """A migrated database with workers, each a process."""
    with connect(file.owner_database_url, "bench migrate") as owner:
        migrate(owner, load_migrations())
    settings = {
        "database_url": file.database_url,
        "cron_database_url": file.cron_database_url,
        "linger_seconds": 3600,
        "clock": clock,
    }
    command = [sys.executable, __file__, "--work", json.dumps(settings)]
    processes = [subprocess.Popen(command) for _ in range(workers)]
    try:
        with connect(file.database_url, "bench workers") as app:
            wait(lambda: len(live_workers(app)) == workers)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Figures:
    """Seconds; those after `placed` are since the minute. runs: how many there were, of so many tasks."""

    created: float
    placed: float
    fired_first: float
    fired_last: float
    written: float
    first: float
    median: float
    last: float
    runs: int
    tasks: int


def fire(app: Connection, tasks: int, clock: Clock | None = None) -> Figures:
    """Make this many tasks (or, for this clock, jobs) for one minute soon, and see them through it."""
    minute = one(
        app, "select date_trunc('minute', now() + %s * interval '1 second') + interval '1 minute'", 20 + tasks // 50
    )[0]
    created, placed = create(app, tasks, minute, clock)
    if one(app, "select extract(epoch from %s - now())::float8", minute)[0] < 5:
        raise SystemExit("Placing took until the minute; try fewer tasks.")
    wait(lambda: one(app, WRITTEN, minute)[0] >= tasks, 0.02)
    written = one(app, "select extract(epoch from clock_timestamp() - %s)::float8", minute)[0]
    wait(lambda: one(app, UNENDED)[0] == 0)
    runs, distinct, first, median, last = one(app, STARTS if clock is None else RAW_STARTS, minute)
    fired_first, fired_last = one(app, FIRINGS, minute)
    return Figures(created, placed, fired_first, fired_last, written, first, median, last, runs, distinct)


def create(app: Connection, tasks: int, minute: datetime, clock: Clock | None) -> tuple[float, float]:
    """Seconds to create this many for one minute in one transaction, and from there until all are placed."""
    began = time.monotonic()
    with app.transaction():
        app.execute(CREATE if clock is None else CREATE_RAW, [pg_cron_for(minute) if clock else minute, tasks])
    created = time.monotonic()
    if clock is not None:
        sync(app, clock)
    wait(lambda: one(app, UNENDED)[0] == 0)
    return created - began, time.monotonic() - created


def one(app: Connection, statement: str, *values: object) -> tuple[Any, ...]:
    row = app.execute(statement, values).fetchone()
    assert row is not None
    return tuple(row)


def wait(condition: Callable[[], bool], seconds: float = 0.2) -> None:
    while not condition():
        time.sleep(seconds)


if __name__ == "__main__":
    main()
