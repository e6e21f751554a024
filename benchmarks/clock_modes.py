"""The clock with a clock job each, and with one a schedule: what pg_cron's launcher costs, and how fast all fires.

    python benchmarks/clock_modes.py [--clock jobs slots] [--tasks 1000 10000] [--due 10000] [--workers 2] [--idle 30]

For each mode and number of tasks: a private cluster of its own in a temporary folder, with real pg_cron and all
defaults. The tasks are made and placed, spread over the minutes of a day in the next month. Idle is the time after
that, with nothing due: what the launcher's process took of a core, and its own memory. Then up to --due more tasks are
made for one minute, placed and fired, as in due_at_once.py.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import psutil
from due_at_once import at_work, fire, one, wait

from sumaclock_dagster.db import Connection, connect, query
from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.embedded.configuration import ClusterFile

SPREAD = """
    select sumaclock.create_task(organization_id => 'bench', user_id => 'bench', kind => 'log',
        instant => date_trunc('day', now() + interval '30 days') + i %% 1440 * interval '1 minute')
    from generate_series(%s::integer, %s::integer) i"""
OPEN = "select count(*) from sumaclock.cron_runs where finished_at is null"
CLOCK_JOBS = "select count(*) from cron.job where jobname !~ ':system:'"
BATCH = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clock", nargs="+", choices=("jobs", "slots"), default=["jobs", "slots"])
    parser.add_argument("--tasks", nargs="+", type=int, default=[1000, 10_000])
    parser.add_argument("--due", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--idle", type=float, default=30)
    arguments = parser.parse_args()
    print(
        "| tasks | clock | clock jobs | placed/s | launcher idle, % of a core | its memory, MB | due at once |", end=""
    )
    print(" fired by pg_cron, s | all runs written, s | first / median / last start, s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for tasks in arguments.tasks:
        for clock in arguments.clock:
            row(tasks, clock, min(arguments.due, tasks), arguments.workers, arguments.idle)


def row(tasks: int, clock: str, due: int, workers: int, idle: float) -> None:
    home = Path(tempfile.mkdtemp(prefix="sumaclock-bench-"))
    home.chmod(0o711)
    private = PrivateCluster(home)
    try:
        file = private.start()
        with at_work(file, workers, clock), connect(file.database_url, "bench") as app:
            print(f"| {tasks} | {clock} | {measure(app, file, tasks, due, idle)} |", flush=True)
    finally:
        private.stop(fast_seconds=10)
        shutil.rmtree(home, ignore_errors=True)


def measure(app: Connection, file: ClusterFile, tasks: int, due: int, idle: float) -> str:
    began = time.monotonic()
    for start in range(0, tasks, BATCH):
        app.execute(SPREAD, [start + 1, min(start + BATCH, tasks)])
        wait(lambda: one(app, OPEN)[0] == 0)
    spread = time.monotonic() - began
    core, memory = launcher(file, idle)
    with connect(file.cron_database_url, "bench cron") as cron:
        clock_jobs = one(cron, CLOCK_JOBS)[0]
    figures = fire(app, due)
    fired = f"{figures.fired_first:.2f} to {figures.fired_last:.2f}"
    starts = f"{figures.first:.2f} / {figures.median:.2f} / {figures.last:.2f}"
    assert figures.runs == figures.tasks == due
    shown = (
        clock_jobs,
        f"{tasks / spread:.0f}",
        f"{core:.2f}",
        f"{memory:.1f}",
        due,
        fired,
        f"{figures.written:.2f}",
        starts,
    )
    return " | ".join(map(str, shown))


def launcher(file: ClusterFile, idle: float) -> tuple[float, float]:
    """Its share of a core in percent over so many seconds, and its own memory in MB."""
    with connect(file.database_url, "bench launcher") as conn:
        process = psutil.Process(one(conn, query("find_launcher").decode())[0])
    before = process.cpu_times()
    time.sleep(idle)
    after = process.cpu_times()
    used = after.user + after.system - before.user - before.system
    return 100 * used / idle, process.memory_full_info().uss / 1e6


if __name__ == "__main__":
    main()
