"""From the commit of a run to the start of its handler while no worker lives, step by step.

    python benchmarks/cold_start.py [--rounds 10] [--workers 0] [--json FILE]

A real stack: a private cluster in a temporary folder, Dagster's storage on it, daemon and code server as `bin/up`
starts them, no webserver. Before each round all workers have ended, and a random time goes by, so that the commit meets
the sensor at any point of its tick. With --workers 1 that many are kept alive, as by default: what a run waits for
then, and what a worker that waits costs. About a minute to begin with, and half a minute a round.

sensor      from the commit until the sensor pending_runs asks for a worker
Dagster run until the daemon has made it
queue       until Dagster's queue lets it go
launch      until its process exists
process     until it has Dagster imported and says so
definitions until the code location is loaded and the Dagster run begins
step        until the worker is registered
claim       until the handler starts
CPU         what the process has taken of it by then
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import dagster as dg
import psutil  # type: ignore[import-untyped]
from due_at_once import one, wait
from ground import private_cluster, write_down

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.embedded.children import Children, stop_children
from sumaclock_dagster.embedded.dagster_home import (
    CODE_SERVER,
    DAEMON,
    bring_schema_up_to_date,
    commands,
    make_dagster_home,
)
from sumaclock_dagster.embedded.health import code_server_listens
from sumaclock_dagster.embedded.ui_port import any_free_port
from sumaclock_dagster.queue.runs import fire, get_run
from sumaclock_dagster.queue.workers import WorkerRow, live_workers
from sumaclock_dagster.settings import Settings

JOB = """
    insert into sumaclock.cron_jobs (kind, organization_id, user_id, schedule)
    values ('demo', 'bench', 'bench', '0 0 29 2 *') returning id"""
REQUESTED = "select extract(epoch from requested_at)::float8 from sumaclock.workers where id = %s"
RETIRE = "update sumaclock.workers set retires_at = now() where stopped_at is null and started_at is not null"
UNENDED = "select count(*) from sumaclock.workers where stopped_at is null"
COLUMNS = ("in all", "CPU")
STEPS = ("sensor", "Dagster run", "queue", "launch", "process", "definitions", "step", "claim")
SENSOR_TICK_SECONDS = 25.0
IDLE_SECONDS = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--json", type=Path, help="append the figures to this file")
    arguments = parser.parse_args()
    with (
        private_cluster() as (home, file),
        stack(home, arguments.workers) as instance,
        connect(file.database_url, "bench") as app,
    ):
        job_id = one(app, JOB)[0]
        if arguments.workers:
            waiting(app, job_id, arguments.workers, arguments.rounds, arguments.json)
        else:
            cold(app, instance, job_id, arguments.rounds, arguments.json)


@contextmanager
def stack(home: Path, workers: int) -> Iterator[dg.DagsterInstance]:
    """Dagster's code server and daemon, for so many workers at least."""
    os.environ |= {"SUMACLOCK_MIN_WORKERS": str(workers), "SUMACLOCK_LINGER_SECONDS": "3600"}
    dagster = make_dagster_home(Settings(home=home), uuid4().hex, any_free_port(), any_free_port())
    bring_schema_up_to_date(dagster, always=True)
    logs = home / "logs"
    logs.mkdir()
    children = Children(commands(dagster), dagster.environment, "bench", logs, lambda _: None)
    try:
        children.start(CODE_SERVER)
        wait(lambda: code_server_listens(dagster))
        children.start(DAEMON)
        os.environ["SUMACLOCK_DAGSTER_DATABASE_URL"] = dagster.environment["SUMACLOCK_DAGSTER_DATABASE_URL"]
        with dg.DagsterInstance.from_config(str(dagster.folder)) as instance:
            yield instance
    finally:
        stop_children(children.identities, 1, lambda: False, print)


def cold(app: Connection, instance: dg.DagsterInstance, job_id: UUID, rounds: int, out: Path | None) -> None:
    figures: list[dict[str, float]] = []
    print(f"| round | {' | '.join([*STEPS, *COLUMNS])} |")
    print("|---|" + "---|" * len([*STEPS, *COLUMNS]))
    # The first Dagster run of a new stack is no measure: the daemon imports what it needs.
    for number in range(rounds + 1):
        nobody_lives(app)
        time.sleep(random.uniform(2, 2 + SENSOR_TICK_SECONDS))
        found = steps(app, instance, job_id)
        print(line(str(number or "warm-up"), found), flush=True)
        if number:
            figures.append(found)
            write_down(out, "cold_start", round=number, **found)
    for name, of in (("median", statistics.median), ("worst", max)):
        print(line(name, {step: of([found[step] for found in figures]) for step in (*STEPS, *COLUMNS)}))


def nobody_lives(app: Connection) -> None:
    """Ends all workers, also those that are still starting because a run has waited long."""

    def ended() -> bool:
        app.execute(RETIRE)
        return bool(one(app, UNENDED)[0] == 0)

    wait(ended)


def steps(app: Connection, instance: dg.DagsterInstance, job_id: UUID) -> dict[str, float]:
    """Seconds of each step of one cold start."""
    run_id = fire(app, job_id)
    committed = time.time()
    wait(lambda: get_run(app, run_id).finished_at is not None, 0.05)
    run = get_run(app, run_id)
    (worker,) = live_workers(app)
    cpu = cpu_seconds(psutil.Process(worker.pid))
    assert worker.pid is not None
    assert run.started_at is not None
    made, events = read_dagster_run(instance, str(worker.dagster_run_id))
    moments = [
        committed,
        one(app, REQUESTED, worker.id)[0],
        made,
        events["PIPELINE_STARTING"],
        process_start(worker.pid),
        events["process"],
        events["PIPELINE_START"],
        worker.started_at.timestamp(),
        run.started_at.timestamp(),
    ]
    found = {step: after - before for step, before, after in zip(STEPS, moments[:-1], moments[1:], strict=True)}
    return {**found, "in all": moments[-1] - committed, "CPU": cpu}


def read_dagster_run(instance: dg.DagsterInstance, dagster_run_id: str) -> tuple[float, dict[str, float]]:
    """When it was made, and when what was first reported of it, in epoch seconds."""
    record = instance.get_run_record_by_id(dagster_run_id)
    assert record is not None
    events: dict[str, float] = {}
    for entry in instance.all_logs(dagster_run_id):
        if entry.dagster_event is not None:
            started = (entry.dagster_event.message or "").startswith("Started process for run")
            events.setdefault("process" if started else entry.dagster_event.event_type_value, entry.timestamp)
    return record.create_timestamp.timestamp(), events


def process_start(pid: int) -> float:
    """In epoch seconds, by today's clock."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def line(name: str, found: dict[str, float]) -> str:
    return f"| {name} | {' | '.join(f'{found[step]:.2f}' for step in (*STEPS, *COLUMNS))} |"


def waiting(app: Connection, job_id: UUID, workers: int, rounds: int, out: Path | None) -> None:
    """What a run waits for while workers wait for it, and what these cost meanwhile."""
    wait(lambda: len(live_workers(app)) >= workers)
    time.sleep(5)
    costs = cost_of(live_workers(app))
    starts = []
    for _ in range(rounds):
        run_id = fire(app, job_id)
        committed = time.time()
        wait(lambda run_id=run_id: get_run(app, run_id).finished_at is not None, 0.05)  # type: ignore[misc]
        started_at = get_run(app, run_id).started_at
        assert started_at is not None
        starts.append(1000 * (started_at.timestamp() - committed))
        time.sleep(0.2)
    median, worst = statistics.median(starts), max(starts)
    print(f"{workers} waiting: commit → handler {median:.1f} ms (median), {worst:.1f} ms (worst)")
    write_down(out, "warm_start", workers=workers, median_ms=median, worst_ms=worst, **costs)


def cost_of(workers: list[WorkerRow]) -> dict[str, float]:
    """Of one worker, on average."""
    processes = [psutil.Process(worker.pid) for worker in workers]
    before = sum(map(cpu_seconds, processes))
    time.sleep(IDLE_SECONDS)
    core = 100 * (sum(map(cpu_seconds, processes)) - before) / IDLE_SECONDS / len(processes)
    memory = [process.memory_full_info() for process in processes]
    own = statistics.mean(one.uss for one in memory) / 1e6
    resident = statistics.mean(one.rss for one in memory) / 1e6
    print(f"a worker that waits: {core:.2f} % of a core, {own:.0f} MB of its own, {resident:.0f} MB resident")
    return {"core_percent": core, "own_mb": own, "resident_mb": resident}


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
