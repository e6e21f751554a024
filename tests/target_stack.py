"""Real Dagster processes for tests of targets: a user's code location with sumaclock in it, a second one, daemon and
webserver, on a storage of their own.

A lean stack is for many Dagster runs: its code location has the sensors of targets only, a worker lives outside of
Dagster, and Dagster runs are forked (tests/forking_launcher.py), since a new process for each takes seconds.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import dagster as dg
import psutil
import yaml
from dagster._core.scheduler.instigation import InstigatorTick

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.model import Run
from sumaclock_dagster.own_handlers import own_handlers
from sumaclock_dagster.queue.runs import get_run
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.worker import Worker, WorkerConfig
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.dagster_storage import ROOT, dagster_home, dagster_instance
from tests.forking_launcher import PIPE
from tests.test_dagster_e2e import _is_listening, free_port, start, stop
from tests.waiting import until

T = TypeVar("T")
# Everything takes its time on a machine that does much else.
PATIENCE_SECONDS = 200.0
HERE, ELSEWHERE = "reports", "elsewhere"
# The code location of each code server; of two with the same one a stack has one.
SERVERS = {"code_server": HERE, "other_code_server": ELSEWHERE, "reloading_code_server": ELSEWHERE}
# As a user writes it: nothing in it knows of schedules.
USER_CODE = """
import os
import time
import dagster as dg
from sumaclock_dagster import with_sumaclock

days = dg.DailyPartitionsDefinition(start_date="2026-01-01", timezone="Europe/Madrid")
# Into the future, where tests of a change of clocks set PostgreSQL's.
weeks = dg.WeeklyPartitionsDefinition(start_date="2026-01-05", timezone="Europe/Madrid", day_offset=1, end_offset=60)
customers = dg.DynamicPartitionsDefinition(name="customers")

class Report(dg.Config):
    customer: str = "nobody"
    seconds: float = 0.0
    gate: str = ""

@dg.asset(partitions_def=days)
def daily_report(context: dg.AssetExecutionContext, config: Report) -> None:
    context.add_output_metadata({"customer": config.customer})

@dg.asset(partitions_def=dg.MultiPartitionsDefinition({"customer": customers, "week": weeks}))
def weekly_report(context: dg.AssetExecutionContext) -> None:
    context.add_output_metadata({"customer": context.partition_key.keys_by_dimension["customer"]})

@dg.op
def work_for(context: dg.OpExecutionContext, config: Report) -> None:
    time.sleep(config.seconds)
    while config.gate and not os.path.exists(config.gate):
        time.sleep(0.1)
    if config.customer == "broke":
        raise ValueError("the customer is broke")

@dg.job
def invoice():
    work_for()

assets, jobs = [daily_report, weekly_report], [invoice]
defs = with_sumaclock(dg.Definitions(assets=assets, jobs=jobs, executor=dg.in_process_executor))
"""
LEAN_CODE = """
from sumaclock_dagster.defs.resources import Sumaclock
from sumaclock_dagster.defs.targets import make_target_sensors
from sumaclock_dagster.settings import Settings

defs = dg.Definitions(
    assets=assets,
    jobs=jobs,
    sensors=make_target_sensors(jobs, assets),
    resources={"sumaclock": Sumaclock(settings=Settings(), handlers={}, code_version="test")},
    executor=dg.in_process_executor,
)
"""
OTHER_CODE = """
import os
import time
import dagster as dg

customers = dg.DynamicPartitionsDefinition(name="other_customers")

@dg.asset(partitions_def=customers)
def churn(context: dg.AssetExecutionContext) -> None:
    context.add_output_metadata({"customer": context.partition_key})

class Export(dg.Config):
    month: str
    gate: str = ""

@dg.op
def write(context: dg.OpExecutionContext, config: Export) -> None:
    context.log.info(config.month)
    while config.gate and not os.path.exists(config.gate):
        time.sleep(0.1)

@dg.job
def export():
    write()

@dg.op
def bill(context: dg.OpExecutionContext) -> None:
    context.log.info(context.partition_key)

@dg.job(partitions_def=dg.DynamicPartitionsDefinition(name="billed"))
def bills():
    bill()

defs = dg.Definitions(assets=[churn], jobs=[export, bills], executor=dg.in_process_executor)
"""
EAGER = {
    "SUMACLOCK_DEAD_SESSION_SECONDS": "2",
    "SUMACLOCK_HEARTBEAT_SECONDS": "1",
    "SUMACLOCK_DAGSTER_LOST_SECONDS": "10",
}
FORKED = {"module": "tests.forking_launcher", "class": "ForkingLauncher"}


@dataclass
class TargetStack:
    """`processes` by name: code_server, other_code_server, webserver, daemon, worker, forker."""

    folder: Path
    db: AppDatabase
    app: Connection
    instance: dg.DagsterInstance
    environment: dict[str, str]
    ports: dict[str, int]
    processes: dict[str, subprocess.Popen[bytes]]

    def start(self, name: str) -> None:
        """Start the process; a code server, until it listens."""
        process = start(self.folder, self.environment, name, *self._command(name))
        self.processes[name] = process
        if name in self.ports:
            until(lambda: _is_listening(self.ports[name]) or process.poll() is not None, 90, name)
            assert process.poll() is None, (self.folder / f"{name}.log").read_text()[-3000:]

    def kill(self, name: str) -> None:
        """Kill the process and what it started, at once."""
        process = self.processes.pop(name)
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in family:
            if child.is_running():
                child.kill()
        process.wait(10)

    def configure(self, changes: dict[str, Any]) -> None:
        """Write dagster.yaml anew, with `changes` as `target_stack` takes them; who starts from now on reads it."""
        _write_dagster_yaml(self.folder, changes)

    def _command(self, name: str) -> list[str]:
        grpc = ["-m", "dagster", "api", "grpc", "--host", "127.0.0.1", "--port", str(self.ports.get(name))]
        return {
            "code_server": [*grpc, "-m", "user_code", "--location-name", HERE],
            "other_code_server": [*grpc, "-m", "other_code", "--location-name", ELSEWHERE],
            "reloading_code_server": [
                *("-m", "dagster", "code-server", "start", "--host", "127.0.0.1", "--port", str(self.ports.get(name))),
                *("-m", "other_code", "--location-name", ELSEWHERE),
            ],
            "daemon": ["-m", "dagster._daemon", "run", "-w", "workspace.yaml"],
            "webserver": [
                *("-m", "dagster_webserver", "-w", "workspace.yaml", "-h", "127.0.0.1"),
                *("-p", str(self.ports.get("webserver"))),
            ],
            "worker": ["-m", "tests.target_stack"],
            "forker": ["-m", "tests.forking_launcher"],
        }[name]

    def dagster_run(self, run_id: int) -> dg.DagsterRun:
        """The one Dagster run that was launched for the run."""
        (run,) = self.instance.get_runs(dg.RunsFilter(tags={"sumaclock/run": str(run_id)}))
        return run

    def ended(self, run_id: int, timeout_seconds: float = PATIENCE_SECONDS) -> Run:
        def look() -> Run | None:
            run = get_run(self.app, run_id)
            return run if run.finished_at else None

        return self.until(look, f"the end of run {run_id}", timeout_seconds)

    def until(self, condition: Callable[[], T | None], what: str, timeout_seconds: float = PATIENCE_SECONDS) -> T:
        """As `tests.waiting.until`, and a failure tells what the processes said."""
        try:
            found = until(condition, timeout_seconds, what, 0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None
        assert found is not None
        return found

    def ticks(self) -> list[InstigatorTick]:
        """The ticks of the sensors of targets, newest first for each."""
        states = [state for state in self.instance.all_instigator_state() if "targets" in state.name]
        return [
            tick
            for state in states
            for tick in self.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=500)
        ]

    def logs(self) -> str:
        tails = [f"--- {log.name}\n{log.read_text()[-2500:]}" for log in sorted(self.folder.glob("*.log"))]
        rows = self.app.execute(
            "select cron_run_id, state, offers, left(error, 100) from sumaclock.dagster_launches order by id"
        ).fetchall()
        failed = [str(tick.error)[:1000] for tick in self.ticks() if tick.error]
        return f"launches: {rows[:40]}\nfailed ticks: {failed[:5]}\nlogs:\n" + "\n".join(tails)


@contextmanager
def target_stack(
    cluster: TestCluster,
    *names: str,
    lean: bool = False,
    yaml_changes: dict[str, Any] | None = None,
    app_cluster: TestCluster | None = None,
    variables: dict[str, str] | None = None,
) -> Iterator[TargetStack]:
    """A stack with the processes `names`. yaml_changes: sections that take the place of dagster.yaml's. app_cluster: of
    the app database, where Dagster's is in another one. variables: of the environment, which take the place of ours."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    with dagster_home(cluster, f"{name}_dagster") as (folder, dagster_url):
        ports = {key: free_port() for key in (*SERVERS, "webserver")}
        (folder / "user_code.py").write_text(USER_CODE.partition("defs =")[0] + LEAN_CODE if lean else USER_CODE)
        (folder / "other_code.py").write_text(OTHER_CODE)
        _write_configuration(
            folder, ports, {**({"run_launcher": FORKED} if lean else {}), **(yaml_changes or {})}, names
        )
        os.mkfifo(folder / PIPE)
        db = make_app_database(app_cluster or cluster, name)
        environment = {
            **os.environ,
            **EAGER,
            "PYTHONPATH": f"{folder}:{ROOT}",
            "PYTHONUNBUFFERED": "1",
            "DAGSTER_HOME": str(folder),
            "SUMACLOCK_DATABASE_URL": db.app_url,
            "SUMACLOCK_CRON_DATABASE_URL": db.cron_url,
            "SUMACLOCK_DAGSTER_DATABASE_URL": dagster_url,
            "no_grpc_proxy": "127.0.0.1,localhost",
            **(variables or {}),
        }
        if "webserver" in names:
            environment["SUMACLOCK_DAGSTER_GRAPHQL_URL"] = f"http://127.0.0.1:{ports['webserver']}/graphql"
        try:
            with dagster_instance(folder, dagster_url) as instance, connect(db.app_url, "test targets") as app:
                stack = TargetStack(folder, db, app, instance, environment, ports, {})
                try:
                    for process in names:
                        stack.start(process)
                    yield stack
                finally:
                    stop(list(stack.processes.values()), ())
        finally:
            drop_app_database(app_cluster or cluster, name)


def _write_configuration(folder: Path, ports: dict[str, int], changes: dict[str, Any], names: tuple[str, ...]) -> None:
    _write_dagster_yaml(folder, changes)
    entries = [
        {"grpc_server": {"host": "127.0.0.1", "port": ports[server], "location_name": location}}
        for server, location in SERVERS.items()
        if server in names
    ]
    (folder / "workspace.yaml").write_text(yaml.safe_dump({"load_from": entries}))


def _write_dagster_yaml(folder: Path, changes: dict[str, Any]) -> None:
    configuration = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    (folder / "dagster.yaml").write_text(yaml.safe_dump({**configuration, **changes}))


def add_target_job(app: Connection, payload: dict[str, Any], organization: str = "acme") -> UUID:
    """A job of kind dagster that fires when it is told to."""
    row = app.execute(
        "insert into sumaclock.cron_jobs (kind, organization_id, user_id, payload, schedule)"
        " values ('dagster', %s, 'ana', %s::jsonb, '0 0 1 1 *') returning id",
        [organization, json.dumps(payload)],
    ).fetchone()
    assert row is not None
    return UUID(str(row[0]))


def main() -> None:
    """A worker in a process of its own, until SIGTERM."""
    logging.basicConfig(level=logging.WARNING)
    settings = Settings()
    config = WorkerConfig.from_settings(settings, worker_id=None, dagster_run_id=None, code_version="test")
    worker = Worker(config, own_handlers(settings), logging.getLogger("worker"))
    signal.signal(signal.SIGTERM, lambda *_: worker.stop("SIGTERM"))
    worker.start()
    while not worker.wait(0.5):
        pass


if __name__ == "__main__":
    main()
