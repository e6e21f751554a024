"""The clock with a clock job each, and with one a schedule: what pg_cron's launcher costs, and how fast all fires.

    python benchmarks/clock_modes.py [--clock jobs slots] [--tasks 1000 10000 100000] [--json FILE]

For each mode and number of tasks a private cluster of its own in a temporary folder, with real pg_cron, all defaults,
and two workers, which are processes. So many placed tasks are written set-based, spread over the minutes of a day in
the next month, and a sync makes their clock jobs. Then are measured:

- the launcher with nothing due: its share of a core and its own memory;
- placing through `sumaclock.create_task`: some hundred tasks on minutes that other tasks have already, and as many on
  minutes of their own;
- firing: as many tasks again, all for one minute, and made as above. With a clock job each, 10,000 at most: pg_cron's
  rate is then that of so many among all the others, and the time for all of them follows from it.

What has not fired 90 s after its minute, or not started a minute after that, is not waited for: the figures then say
how many had. All six take about a quarter of an hour. benchmarks/draw.py makes the table and the picture.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from due_at_once import FIRINGS, STARTS, UNENDED, WRITTEN, at_work, one, wait
from ground import private_cluster, write_down

from sumaclock_dagster.calendar import zone_data_version
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection, connect, query
from sumaclock_dagster.embedded.configuration import ClusterFile
from sumaclock_dagster.model import ClockMode
from sumaclock_dagster.reconcile.sync import sync

PLACED = """
    with wanted as materialized (
        select gen_random_uuid() as job, gen_random_uuid() as task,
               %(first)s + i %% %(minutes)s * interval '1 minute' as at
        from generate_series(0, %(count)s - 1) i
    ), jobs as (
        insert into sumaclock.cron_jobs (id, kind, organization_id, user_id, payload, schedule)
        select job, 'ai_task', 'bench', 'bench', jsonb_build_object('task_id', task),
               to_char(at at time zone 'UTC', 'FMMI FMHH24 FMDD FMMM "*"')
        from wanted
    )
    insert into sumaclock.ai_tasks (id, organization_id, user_id, kind, instant, next_run_at, zone_data, cron_job_id)
    select task, 'bench', 'bench', 'log', at, at, %(zone)s, job from wanted"""
CREATE = """
    select sumaclock.create_task(organization_id => 'bench', user_id => 'bench', kind => 'log',
        instant => %(first)s + i * interval '1 minute')
    from generate_series(0, %(count)s - 1) i"""
A_DAY = "select date_trunc('day', now() + %s * interval '1 day')"
A_MINUTE = "select date_trunc('minute', now() + %s * interval '1 second') + interval '1 minute'"
SINCE = "select extract(epoch from clock_timestamp() - %s)::float8"
CLOCK_JOBS = "select count(*) from cron.job where jobname !~ ':system:'"
TIDY = "vacuum analyze sumaclock.cron_jobs, sumaclock.ai_tasks"
MINUTES_OF_A_DAY = 1440
BATCH = 10_000
JOBS_DUE_MOST = 10_000
FIRING_SECONDS = 90.0
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Row:
    """One mode with so many tasks. Times in seconds, those of firing and starting after the minute; rates a second.

    fired, started: how many of `due` had within the patience. written: when all firings were seen; None without all.
    """

    tasks: int
    clock: ClockMode
    clock_jobs: int
    synced: float
    launcher_core_percent: float
    launcher_mb: float
    placed_known: float
    placed_new: float
    due: int
    fired: int
    fired_first: float
    fired_last: float
    written: float | None
    started: int
    start_first: float
    start_median: float
    start_last: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clock", nargs="+", choices=("jobs", "slots"), default=["jobs", "slots"])
    parser.add_argument("--tasks", nargs="+", type=int, default=[1000, 10_000, 100_000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--idle", type=float, default=20, help="seconds that the launcher is watched")
    parser.add_argument("--place", type=int, default=500, help="tasks placed through the API, twice")
    parser.add_argument("--json", type=Path, help="append the figures to this file")
    arguments = parser.parse_args()
    for tasks in arguments.tasks:
        for clock in arguments.clock:
            with private_cluster() as (_, file), at_work(file, arguments.workers, clock):
                row = measure(file, clock, tasks, arguments.place, arguments.idle)
            print(row, flush=True)
            write_down(arguments.json, "clock_modes", workers=arguments.workers, **asdict(row))


def measure(file: ClusterFile, mode: ClockMode, tasks: int, place: int, idle: float) -> Row:
    with connect(file.database_url, "bench") as app, open_clock(app, file.cron_database_url, mode) as clock:

        def say(text: str) -> None:
            print(f"{time.strftime('%X')}  {tasks} tasks, {mode}: {text}", file=sys.stderr, flush=True)

        say("making them")
        a_month_on = one(app, A_DAY, 30)[0]
        synced = make(file, app, clock, tasks, a_month_on, MINUTES_OF_A_DAY)
        say(f"a sync placed them in {synced:.1f} s; watching the launcher")
        core, memory = launcher(file, idle)
        with connect(file.cron_database_url, "bench cron") as cron:
            clock_jobs = one(cron, CLOCK_JOBS)[0]
        say(f"placing {place} and {place} through the API")
        known = placed(app, place, a_month_on)
        new = placed(app, place, one(app, A_DAY, 40)[0])
        due = tasks if mode == "slots" else min(tasks, JOBS_DUE_MOST)
        # A sync looks at all that is there.
        minute = one(app, A_MINUTE, 20 + (tasks + due) // 2500)[0]
        say(f"making {due} more, which are due at {minute:%X}")
        make(file, app, clock, due, minute, 1)
        if one(app, SINCE, minute)[0] > -3:
            raise SystemExit("Making them took until the minute. Is the machine busy?")
        fired, written = see_fired(app, minute, due)
        say(f"{fired} fired")
        started = see_started(app, minute, due)
        all_written = "not all runs written" if written is None else f"all runs written after {written:.2f} s"
        say(f"{all_written}; {started['started']} started, the last after {started['start_last']:.2f} s")
        firings = one(app, FIRINGS, minute)
        of_clock: dict[str, Any] = {
            "clock_jobs": clock_jobs,
            "synced": synced,
            "launcher_core_percent": core,
            "launcher_mb": memory,
        }
        of_firing: dict[str, Any] = {
            "fired": fired,
            "fired_first": firings[0],
            "fired_last": firings[1],
            "written": written,
        }
        return Row(tasks, mode, due=due, placed_known=known, placed_new=new, **of_clock, **of_firing, **started)


def make(file: ClusterFile, app: Connection, clock: Clock, count: int, first: datetime, minutes: int) -> float:
    """Placed tasks, spread over so many minutes, with their clock jobs. Returns the seconds that the sync took."""
    for start in range(0, count, BATCH):
        values = {"first": first, "minutes": minutes, "count": min(BATCH, count - start), "zone": zone_data_version()}
        app.execute(PLACED, values)
    with connect(file.owner_database_url, "bench tidy") as owner:
        owner.execute(TIDY)
    began = time.monotonic()
    report = sync(app, clock)
    assert report.left == [], report.left[:3]
    return time.monotonic() - began


def launcher(file: ClusterFile, idle: float) -> tuple[float, float]:
    """Its share of a core in percent over so many seconds, and its own memory in MB."""
    with connect(file.database_url, "bench launcher") as conn:
        process = psutil.Process(one(conn, query("find_launcher").decode())[0])
    before = process.cpu_times()
    time.sleep(idle)
    after = process.cpu_times()
    used = after.user + after.system - before.user - before.system
    return 100 * used / idle, process.memory_full_info().uss / 1e6


def placed(app: Connection, count: int, first: datetime) -> float:
    """Tasks a second, from the first create_task until the last is placed; each on a minute of its own."""
    began = time.monotonic()
    app.execute(CREATE, {"first": first, "count": count})
    wait(lambda: one(app, UNENDED)[0] == 0, 0.02)
    return count / (time.monotonic() - began)


def see_fired(app: Connection, minute: datetime, due: int) -> tuple[int, float | None]:
    """How many runs there were in the end, and when all of them had been seen."""
    until = FIRING_SECONDS
    wait(lambda: one(app, WRITTEN, minute)[0] >= due or one(app, SINCE, minute)[0] > until, 0.02)
    since, fired = one(app, SINCE, minute)[0], one(app, WRITTEN, minute)[0]
    return fired, since if fired >= due else None


def see_started(app: Connection, minute: datetime, due: int) -> dict[str, Any]:
    """How many had started, and when the first, the one in the middle of these, and the last."""
    until = one(app, SINCE, minute)[0] + PATIENCE_SECONDS
    wait(lambda: one(app, STARTS, minute)[0] >= due or one(app, SINCE, minute)[0] > until, 0.2)
    started, _, first, median, last = one(app, STARTS, minute)
    return {"started": started, "start_first": first, "start_median": median, "start_last": last}


if __name__ == "__main__":
    main()
