"""Many tasks due in the same minute: when does the first start, when the last?

    python benchmarks/due_at_once.py [--tasks 1000] [--workers 1]

On a private cluster of its own in a temporary folder, with real pg_cron and all defaults (durable commits). Each task
is made by `sumaclock.create_task` and placed by the workers, which are processes; pg_cron fires them at the minute. A
start is the task run's `started_at` by the database's clock: the task is locked and about to be executed.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.embedded.configuration import ClusterFile
from sumaclock_dagster.migrate import load_migrations, migrate
from sumaclock_dagster.own_handlers import own_handlers
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.worker import Worker, WorkerConfig

CREATE = """
    select sumaclock.create_task(organization_id => 'bench', user_id => 'bench', kind => 'log', instant => %s)
    from generate_series(1, %s)"""
UNPLACED = "select count(*) from sumaclock.ai_tasks where status = 'active' and next_run_at is null"
OPEN = "select count(*) from sumaclock.ai_tasks where status = 'active'"
STARTS = """
    select count(*), count(distinct task_id),
           min(extract(epoch from started_at - scheduled_for))::float8,
           percentile_cont(0.5) within group (order by extract(epoch from started_at - scheduled_for)),
           max(extract(epoch from started_at - scheduled_for))::float8
    from sumaclock.ai_task_runs"""
FIRINGS = """
    select min(extract(epoch from due_at - scheduled_at))::float8,
           max(extract(epoch from due_at - scheduled_at))::float8
    from sumaclock.cron_runs where trigger = 'clock'"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(Settings(**json.loads(arguments.work)))
        return
    home = Path(tempfile.mkdtemp(prefix="sumaclock-bench-"))
    home.chmod(0o711)
    private = PrivateCluster(home)
    try:
        measure(private.start(), arguments.tasks, arguments.workers)
    finally:
        private.stop(fast_seconds=10)
        shutil.rmtree(home, ignore_errors=True)


def work(settings: Settings) -> None:
    logging.basicConfig(level=logging.WARNING)
    config = WorkerConfig.from_settings(settings, worker_id=None, dagster_run_id=None, code_version="bench")
    worker = Worker(config, own_handlers(settings), logging.getLogger("bench"))
    worker.start()
    worker.wait()


def measure(file: ClusterFile, tasks: int, workers: int) -> None:
    with connect(file.owner_database_url, "bench migrate") as owner:
        migrate(owner, load_migrations())
    settings = {"database_url": file.database_url, "cron_database_url": file.cron_database_url, "linger_seconds": 600}
    command = [sys.executable, __file__, "--work", json.dumps(settings)]
    processes = [subprocess.Popen(command) for _ in range(workers)]
    try:
        with connect(file.database_url, "bench") as app:
            report(app, tasks, workers)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def report(app: Connection, tasks: int, workers: int) -> None:
    ahead = 20 + tasks // 50
    minute = one(app, "select date_trunc('minute', now() + %s * interval '1 second') + interval '1 minute'", ahead)[0]
    began = time.monotonic()
    with app.transaction():
        app.execute(CREATE, [minute, tasks])
    created = time.monotonic()
    wait(lambda: one(app, UNPLACED)[0] == 0)
    placed = time.monotonic()
    print(f"{tasks} tasks, {workers} workers")
    print(f"created in {created - began:.1f} s, all placed {placed - created:.1f} s later")
    left = one(app, "select extract(epoch from %s - now())::float8", minute)[0]
    if left < 5:
        raise SystemExit("Placing took until the minute; try fewer tasks.")
    wait(lambda: one(app, OPEN)[0] == 0)
    count, distinct, first, median, last = one(app, STARTS)
    fired_first, fired_last = one(app, FIRINGS)
    print(f"fired by pg_cron from {fired_first:.2f} to {fired_last:.2f} s after the minute")
    print(f"started: first {first:.2f} s, median {median:.2f} s, last {last:.2f} s after the minute")
    print(f"task runs: {count}, of {distinct} tasks")


def one(app: Connection, statement: str, *values: object) -> tuple[object, ...]:
    row = app.execute(statement, values).fetchone()
    assert row is not None
    return row


def wait(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.2)


if __name__ == "__main__":
    main()
