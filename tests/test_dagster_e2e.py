"""Everything together: pg_cron fires, Dagster's daemon and code server launch workers, workers execute.

One stack of real processes serves all tests of this file, on a database and a Dagster storage of its own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import dagster as dg
import psutil
import pytest

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.model import Run, RunStatus
from sumaclock_dagster.queue.runs import fire, get_run, list_runs
from sumaclock_dagster.queue.workers import WorkerRow, live_workers
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.dagster_storage import ROOT, dagster_home, dagster_instance
from tests.waiting import until

# For what is told by no notification, on a machine that does much else.
PATIENCE_SECONDS = 180.0
# A handler that works until a file exists, so that a test says when it ends.
HANDLERS = """
from pathlib import Path
from sumaclock_dagster.handlers import Handlers

VERSION = "{version}"
handlers = Handlers()

@handlers.register("gated")
def gated(run):
    while not Path(run.payload["gate"]).exists():
        if run.cancelled.wait(0.05):
            return None
    return {{"version": VERSION}}
"""
FAST = {
    "SUMACLOCK_GRACE_SECONDS": "1",
    "SUMACLOCK_OBSERVE_SECONDS": "1",
    "SUMACLOCK_DEAD_SESSION_SECONDS": "2",
    "SUMACLOCK_HEARTBEAT_SECONDS": "1",
    # So seldom that whatever is executed within a test was told of by a notification, or by the worker's start.
    "SUMACLOCK_POLL_SECONDS": "300",
    "SUMACLOCK_HANDLERS": "e2e_handlers:handlers",
}


@dataclass
class Stack:
    """A code server and a daemon on `db`, and what a test needs to look at them."""

    folder: Path
    db: AppDatabase
    app: Connection
    environment: dict[str, str]
    port: int
    instance: dg.DagsterInstance
    code_server: subprocess.Popen[bytes]
    daemon: subprocess.Popen[bytes]
    left_alone: list[psutil.Process] = field(default_factory=list)

    def add_job(self, kind: str, payload: object = None, schedule: str = "0 0 1 1 *") -> UUID:
        row = self.app.execute(
            "insert into sumaclock.cron_jobs (kind, organization_id, user_id, payload, schedule)"
            " values (%s, 'acme', 'ana', %s, %s) returning id",
            [kind, json.dumps(payload or {}), schedule],
        ).fetchone()
        assert row is not None
        return UUID(str(row[0]))

    def worker(self, besides: int = 0, timeout_seconds: float = 40) -> WorkerRow:
        """The one live worker, once there is one with another id than `besides`."""
        found = until(
            lambda: [worker for worker in live_workers(self.app) if worker.id != besides],
            timeout_seconds,
            f"a live worker besides {besides}; {self.logs()}",
        )
        return found[0]

    def ended(self, run_id: int, timeout_seconds: float = 20) -> Run:
        return until(
            lambda: (run := get_run(self.app, run_id)).finished_at and run,
            timeout_seconds,
            f"the end of run {run_id}; {self.logs()}",
        )

    def running(self, run_id: int, worker: WorkerRow) -> Run:
        return until(
            lambda: (run := get_run(self.app, run_id)).claimed_by == worker.id and run,
            10,
            f"run {run_id} in worker {worker.id}",
        )

    def worker_of(self, run_id: int) -> WorkerRow:
        """The live worker that executes the run, once there is one."""

        def look() -> WorkerRow | None:
            claimed_by = get_run(self.app, run_id).claimed_by
            return next((worker for worker in live_workers(self.app) if worker.id == claimed_by), None)

        found = until(look, PATIENCE_SECONDS, f"a worker that executes run {run_id}; {self.logs()}")
        assert found is not None
        return found

    def dagster_run(self, worker: WorkerRow) -> dg.DagsterRun:
        run = self.instance.get_run_by_id(str(worker.dagster_run_id))
        assert run is not None
        return run

    def dagster_ended(self, worker: WorkerRow, timeout_seconds: float = 30) -> dg.DagsterRun:
        return until(
            lambda: (run := self.dagster_run(worker)).is_finished and run,
            timeout_seconds,
            f"the end of the Dagster run of worker {worker.id}; {self.logs()}",
        )

    def write_handlers(self, version: str) -> None:
        (self.folder / "e2e_handlers.py").write_text(HANDLERS.format(version=version))

    def replace_code_server(self) -> None:
        """Another code server takes the place of this one, which dies while its workers live on."""
        self.left_alone += psutil.Process(self.code_server.pid).children(recursive=True)
        self.code_server.kill()
        self.code_server.wait(10)
        self.code_server = start_code_server(self.folder, self.environment, self.port)

    def logs(self) -> str:
        tails = [f"--- {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self.folder.glob("*.log"))]
        return "logs:\n" + "\n".join(tails)


@pytest.fixture(scope="module")
def stack(cluster: TestCluster) -> Iterator[Stack]:
    name = f"t_{uuid.uuid4().hex[:10]}"
    processes: list[subprocess.Popen[bytes]] = []
    running: Stack | None = None
    with dagster_home(cluster, f"{name}_dagster") as (folder, dagster_url):
        try:
            db = make_app_database(cluster, name)
            environment = make_environment(folder, db, dagster_url)
            port = int(environment["SUMACLOCK_CODE_SERVER_PORT"])
            (folder / "e2e_handlers.py").write_text(HANDLERS.format(version="one"))
            code_server = start_code_server(folder, environment, port)
            processes.append(code_server)
            daemon = start(folder, environment, "daemon", "-m", "dagster._daemon", "run", "-w", "workspace.yaml")
            processes.append(daemon)
            with dagster_instance(folder, dagster_url) as instance, connect(db.app_url, "test e2e") as app:
                running = Stack(folder, db, app, environment, port, instance, code_server, daemon)
                yield running
        finally:
            stop([daemon, running.code_server] if running else processes, running.left_alone if running else ())
            drop_app_database(cluster, name)


def make_environment(folder: Path, db: AppDatabase, dagster_url: str) -> dict[str, str]:
    return {
        **os.environ,
        **FAST,
        "PYTHONPATH": f"{folder}:{ROOT}",
        "PYTHONUNBUFFERED": "1",
        "DAGSTER_HOME": str(folder),
        "SUMACLOCK_DATABASE_URL": db.app_url,
        "SUMACLOCK_CRON_DATABASE_URL": db.cron_url,
        "SUMACLOCK_DAGSTER_DATABASE_URL": dagster_url,
        "SUMACLOCK_CODE_SERVER_PORT": str(free_port()),
    }


def start_code_server(folder: Path, environment: dict[str, str], port: int) -> subprocess.Popen[bytes]:
    arguments = "-m dagster api grpc -m sumaclock_dagster.definitions --host 127.0.0.1 --location-name sumaclock --port"
    process = start(folder, environment, "code_server", *arguments.split(), str(port))
    until(lambda: _is_listening(port) or process.poll() is not None, 60, "the code server")
    assert process.poll() is None, (folder / "code_server.log").read_text()
    return process


def start(folder: Path, environment: dict[str, str], name: str, *arguments: str) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def stop(processes: list[subprocess.Popen[bytes]], left_alone: Iterable[psutil.Process]) -> None:
    """End the processes and everything that they started."""
    family = [*left_alone, *(child for process in processes for child in _family(process.pid))]
    for process in family:
        _signal(process, signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=15)
    for process in alive:
        _signal(process, signal.SIGKILL)
    for parent in processes:
        parent.wait(10)


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.firing
def test_a_job_fires_on_its_minute_and_a_worker_of_the_sensor_executes_it(stack: Stack) -> None:
    worker = stack.worker(timeout_seconds=60)
    job = stack.add_job("demo", schedule="* * * * *")
    with connect(stack.db.cron_url, "test clock") as cron:
        cron.execute(
            "select cron.schedule_in_database(%s, '* * * * *', %s, %s)",
            [
                f"{stack.db.name}:cron:{job}",
                f"insert into sumaclock.cron_runs (job_id) values ('{job}'); notify cron_runs;",
                stack.db.name,
            ],
        )
    fired = until(lambda: list_runs(stack.app, job_id=job), 75, f"a firing; {stack.logs()}")[-1]
    run = stack.ended(fired.id)

    assert run.status is RunStatus.DONE, run.error
    assert run.result["hello"] == "acme"
    assert run.scheduled_at.second == 0
    assert run.started_at is not None
    # By its own poll it would have been up to 300 seconds.
    assert worker.started_at < run.scheduled_at
    assert 0 <= (run.started_at - run.scheduled_at).total_seconds() < 60
    assert run.dagster_run_id == worker.dagster_run_id
    dagster_run = stack.dagster_run(worker)
    assert dagster_run.job_name == "work"
    assert dagster_run.status is dg.DagsterRunStatus.STARTED
    assert dagster_run.tags["sumaclock/worker"] == str(worker.id)
    with connect(stack.db.cron_url, "test clock") as cron:
        cron.execute("select cron.unschedule(%s)", [f"{stack.db.name}:cron:{job}"])


def test_what_a_worker_did_is_in_dagster(stack: Stack) -> None:
    worker = stack.worker()
    failing = stack.add_job("demo", {"fail": "no such invoice"})
    good = [stack.ended(fire(stack.app, stack.add_job("demo"))) for _ in range(3)]
    bad = stack.ended(fire(stack.app, failing))

    def observed() -> dict[int, dict[str, object]]:
        records = stack.instance.fetch_observations(dg.AssetKey("cron_runs"), limit=50).records
        found: dict[int, dict[str, object]] = {}
        for record in records:
            observation = record.asset_observation
            assert observation is not None
            firings = observation.metadata["firings"]
            assert isinstance(firings, dg.TableMetadataValue)
            found |= {int(line.data["run"]): dict(line.data) for line in firings.records}
        return found

    ids = {run.id for run in (*good, bad)}
    lines = until(lambda: ids <= (seen := observed()).keys() and seen, 15, f"observations of {ids}")
    assert {lines[run.id]["outcome"] for run in good} == {"done"}
    assert lines[bad.id]["outcome"] == "failed"
    assert "no such invoice" in str(lines[bad.id]["error"])

    def errors() -> list[str]:
        logs = stack.instance.all_logs(str(worker.dagster_run_id))
        return [entry.user_message for entry in logs if entry.level == 40 and not entry.is_dagster_event]

    error = until(lambda: [text for text in errors() if text.startswith(f"Run {bad.id} failed")], 15, "an error event")
    assert len(error) == 1
    assert "kind demo" in error[0]
    assert "no such invoice" in error[0]

    output = "".join(file.read_text() for file in stack.folder.glob(f"storage/{worker.dagster_run_id}/**/*.err"))
    assert [line for line in output.splitlines() if f"run {good[0].id}" in line and "Demo run for acme" in line]


def test_a_terminated_worker_gives_its_runs_back_uncounted_and_is_replaced(stack: Stack) -> None:
    worker = stack.worker()
    gate = stack.folder / "gate_terminate"
    run_id = fire(stack.app, stack.add_job("gated", {"gate": str(gate)}))
    stack.running(run_id, worker)

    assert stack.instance.run_launcher.terminate(str(worker.dagster_run_id))

    dagster_run = stack.dagster_ended(worker)
    assert dagster_run.status is dg.DagsterRunStatus.CANCELED
    assert dagster_run.tags["sumaclock/ended"]
    successor = stack.worker(besides=worker.id)
    run = stack.running(run_id, successor)
    assert (run.attempts, run.lost) == (1, 0), "the attempt that the terminated worker could not finish is not counted"
    gate.touch()
    assert stack.ended(run_id).status is RunStatus.DONE


def test_a_killed_worker_is_replaced_and_its_run_released(stack: Stack) -> None:
    worker = stack.worker()
    gate = stack.folder / "gate_kill"
    run_id = fire(stack.app, stack.add_job("gated", {"gate": str(gate)}))
    stack.running(run_id, worker)
    assert worker.pid is not None

    psutil.Process(worker.pid).kill()

    successor = stack.worker(besides=worker.id)
    run = until(
        lambda: (run := get_run(stack.app, run_id)).claimed_by == successor.id and run, 30, "the release of the run"
    )
    assert (run.attempts, run.lost) == (2, 1)
    gate.touch()
    assert stack.ended(run_id).status is RunStatus.DONE
    assert stack.dagster_ended(worker).status is dg.DagsterRunStatus.FAILURE


def test_a_worker_that_its_machine_stops_ends_in_good_order(stack: Stack) -> None:
    worker = stack.worker()
    gate = stack.folder / "gate_stop"
    run_id = fire(stack.app, stack.add_job("gated", {"gate": str(gate)}))
    stack.running(run_id, worker)
    process = psutil.Process(worker.pid)

    process.terminate()
    process.terminate()

    dagster_run = stack.dagster_ended(worker)
    assert dagster_run.status is dg.DagsterRunStatus.SUCCESS, "nobody cancelled it, and nothing failed"
    run = stack.running(run_id, stack.worker(besides=worker.id))
    assert (run.attempts, run.lost) == (1, 0)
    gate.touch()
    assert stack.ended(run_id).status is RunStatus.DONE


def test_workers_of_older_code_retire_after_a_deployment(stack: Stack) -> None:
    gate = stack.folder / "gate_code"
    run_id = fire(stack.app, stack.add_job("gated", {"gate": str(gate)}))
    # Where the tests before kept runs waiting, there are two workers, and either may claim it.
    worker = stack.worker_of(run_id)

    stack.write_handlers("two")
    stack.replace_code_server()

    until(
        lambda: any(w.code_version != worker.code_version for w in live_workers(stack.app)),
        PATIENCE_SECONDS,
        f"a worker with the new code; {stack.logs()}",
    )
    gate.touch()
    run = stack.ended(run_id, PATIENCE_SECONDS)
    assert (run.result, run.attempts) == ({"version": "one"}, 1), "the old worker finishes what it holds"
    assert stack.dagster_ended(worker, PATIENCE_SECONDS).status is dg.DagsterRunStatus.SUCCESS
    run = stack.ended(fire(stack.app, stack.add_job("gated", {"gate": str(gate)})))
    assert run.result == {"version": "two"}
