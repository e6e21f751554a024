"""Dagster runs whose process is gone, and those that only seem so: real processes, on a real Dagster instance."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import psutil  # type: ignore[import-untyped]
import pytest
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.events import DagsterEvent
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.client import DagsterGrpcClient

from sumaclock_dagster.db import Connection
from sumaclock_dagster.defs import lost, run_processes
from sumaclock_dagster.defs.following import find, follow, give_up_lost
from sumaclock_dagster.defs.run_processes import RunProcess, is_seen, this_machine
from sumaclock_dagster.launches import progress
from sumaclock_dagster.model import RunStatus
from sumaclock_dagster.queue.runs import fire, get_run
from sumaclock_dagster.settings import Settings
from tests.conftest import AppDatabase, TestCluster
from tests.dagster_storage import ROOT, dagster_home, dagster_instance
from tests.target_stack import TargetStack, add_target_job, target_stack
from tests.test_dagster_e2e import free_port
from tests.test_targets_sensor import ask, nightly
from tests.waiting import until

HERE, ELSEWHERE = "reports", "elsewhere"
HOUR, DAY = 3600.0, 86_400.0
SETTINGS = Settings()


@pytest.fixture(scope="module")
def instance(cluster: TestCluster) -> Iterator[dg.DagsterInstance]:
    with dagster_home(cluster, f"d_{uuid.uuid4().hex[:10]}") as home, dagster_instance(*home) as instance:
        yield instance


@contextmanager
def a_process() -> Iterator[int]:
    """The id of a process that lives until the block ends; afterwards nothing has it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def dead_pid() -> int:
    with a_process() as pid:
        pass
    return pid


def started(
    instance: dg.DagsterInstance, pid: int, location: str = HERE, port: int | None = None, **tags: str
) -> dg.DagsterRun:
    """A Dagster run that began in the process `pid`, launched in a code server that no other answers for."""
    port = port or free_port()
    place = GrpcServerCodeLocationOrigin(host="127.0.0.1", port=port, location_name=location)
    run = instance.create_run_for_job(
        nightly,
        status=dg.DagsterRunStatus.STARTED,
        tags={GRPC_INFO_TAG: json.dumps({"host": "127.0.0.1", "port": port}), **tags},
        remote_job_origin=RemoteRepositoryOrigin(place, "__repository__").get_job_origin("nightly"),
    )
    instance.report_dagster_event(DagsterEvent("PIPELINE_START", run.job_name, pid=pid), run.run_id)
    return run


def is_lost(instance: dg.DagsterInstance, run: dg.DagsterRun, after: float, settings: Settings = SETTINGS) -> str:
    """What Dagster is told when `after` seconds passed since the last event; "" for one that goes on. The process of
    one of this code location can only be on this machine."""
    assert run.remote_job_origin is not None or GRPC_INFO_TAG not in run.tags
    seen = {run.run_id} if run.remote_job_origin and run.remote_job_origin.location_name == HERE else ()
    count = lost.report_lost(instance, [run], seen, settings, time.time() + after)
    latest = instance.get_run_by_id(run.run_id)
    assert latest is not None
    assert count == int(latest.is_finished)
    if not count:
        return ""
    assert latest.status is dg.DagsterRunStatus.FAILURE
    (failure,) = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    return failure.dagster_event.message or "" if failure.dagster_event else ""


def test_one_whose_process_is_gone_is_failed_with_the_reason(instance: dg.DagsterInstance) -> None:
    pid = dead_pid()
    run = started(instance, pid)
    assert is_lost(instance, run, 60) == "", "who began a minute ago may be told of in a moment"
    assert f"its process {pid} is gone" in is_lost(instance, run, 130)


def test_a_silent_one_whose_process_lives_goes_on(instance: dg.DagsterInstance) -> None:
    """Its code server died and left it behind; a step of days writes no events."""
    with a_process() as pid:
        for location in (HERE, ELSEWHERE):
            assert is_lost(instance, started(instance, pid, location), 30 * DAY) == ""


def test_a_process_that_only_has_its_number_is_not_taken_for_it(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of a container the same numbers come again."""
    with a_process() as pid:
        run = started(instance, pid)
        # As if it had begun this much earlier than the process that has its number now.
        monkeypatch.setattr(run_processes, "CLOCKS_DIFFER_SECONDS", -HOUR)
        assert f"its process {pid} is gone" in is_lost(instance, run, 130)


def test_one_of_another_machine_that_nobody_can_tell_of_has_a_day(instance: dg.DagsterInstance) -> None:
    run = started(instance, dead_pid(), ELSEWHERE)
    assert is_lost(instance, run, DAY - 60) == ""
    assert "nobody can tell whether it lives" in is_lost(instance, run, DAY + 60)


@pytest.mark.parametrize("tag", ["?", "[]", "{}", "null", '{"port": "x"}', '{"port": 1, "socket": "s"}'])
def test_a_tag_that_names_no_code_server_leaves_it_to_the_process(instance: dg.DagsterInstance, tag: str) -> None:
    pid = dead_pid()
    assert f"its process {pid} is gone" in is_lost(instance, started(instance, pid, **{GRPC_INFO_TAG: tag}), 130)
    with a_process() as pid:
        assert is_lost(instance, started(instance, pid, **{GRPC_INFO_TAG: tag}), 130) == ""
        assert not is_seen(RunProcess(pid, time.time()), tag)


def test_one_that_is_being_canceled_is_canceled(instance: dg.DagsterInstance) -> None:
    run = started(instance, dead_pid())
    instance.report_run_canceling(run)
    canceling = instance.get_run_by_id(run.run_id)
    assert canceling is not None
    assert lost.report_lost(instance, [canceling], {run.run_id}, SETTINGS, time.time() + HOUR) == 1
    latest = instance.get_run_by_id(run.run_id)
    assert latest is not None
    assert latest.status is dg.DagsterRunStatus.CANCELED


@pytest.fixture(scope="module")
def code_servers() -> Iterator[dict[str, dict[str, Any]]]:
    """Where the two kinds of code server listen, which execute nothing: `api grpc`, and one that reloads its code."""
    ports = {"api": free_port(), "code-server": free_port()}
    commands = {"api": ("api", "grpc"), "code-server": ("code-server", "start")}
    with ExitStack() as ends:
        for kind, port in ports.items():
            command = [sys.executable, "-m", "dagster", *commands[kind], "-m", "tests.test_targets_sensor"]
            server = subprocess.Popen([*command, "-a", "nightly", "-h", "127.0.0.1", "-p", str(port)], cwd=ROOT)
            ends.callback(server.wait, 30)
            ends.callback(server.terminate)
        places = {kind: {"host": "127.0.0.1", "port": port} for kind, port in ports.items()}
        until(lambda: all(is_serving(place) for place in places.values()), 240, f"code servers at {places}")
        yield places


def is_serving(place: dict[str, Any]) -> bool:
    try:
        return bool(DagsterGrpcClient(**place).ping("?"))
    except DagsterUserCodeUnreachableError:
        return False


def test_a_code_server_that_lists_what_it_executes_is_believed_after_a_lease(
    instance: dg.DagsterInstance, code_servers: dict[str, dict[str, Any]]
) -> None:
    """On another machine its processes can't be seen: it was started anew, and hardly left any of them behind."""
    run = started(instance, dead_pid(), ELSEWHERE, **{GRPC_INFO_TAG: json.dumps(code_servers["api"])})
    assert is_lost(instance, run, 890) == ""
    assert "knows nothing of it any more" in is_lost(instance, run, 910)


def test_a_code_server_that_knows_its_newest_code_alone_proves_nothing(
    instance: dg.DagsterInstance, code_servers: dict[str, dict[str, Any]]
) -> None:
    run = started(instance, dead_pid(), ELSEWHERE, **{GRPC_INFO_TAG: json.dumps(code_servers["code-server"])})
    assert is_lost(instance, run, DAY - 60) == ""


class HealthyLauncher(DefaultRunLauncher):
    """A run launcher that can look at what it launched, as those for containers do."""

    says = WorkerStatus.RUNNING

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        return CheckRunHealthResult(self.says, "its pod is where it is")


@pytest.mark.parametrize(("says", "is_gone"), [("RUNNING", False), ("NOT_FOUND", True), ("UNKNOWN", False)])
def test_a_launcher_that_can_tell_is_asked_unless_dagster_asks_it(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, says: str, is_gone: bool
) -> None:
    launcher = HealthyLauncher()
    launcher.says = WorkerStatus[says]
    run = instance.create_run_for_job(nightly, status=dg.DagsterRunStatus.STARTED)
    monkeypatch.setattr(instance, "_run_launcher", launcher)
    assert instance.run_monitoring_enabled
    assert is_lost(instance, run, HOUR) == "", "Dagster's own monitoring looks after it, and may resume it"
    monkeypatch.setattr(type(instance), "run_monitoring_enabled", False)
    assert ("its pod is where it is" in is_lost(instance, run, HOUR)) == is_gone


def test_a_lost_one_fails_its_run_unless_dagster_retries_it(
    app_db: AppDatabase, app: Connection, instance: dg.DagsterInstance
) -> None:
    runs = ask(app, {"job": "nightly"}, 2)
    keys: dict[int, Any] = {}
    for one in progress.sought(app) or progress.offer(app, location=HERE, assets=False, most=9, lease_seconds=60):
        keys[one.cron_run_id] = str(one.launch_key)
    first, retried = (started(instance, dead_pid(), **{"sumaclock/launch": keys[run]}) for run in runs)
    find(instance, app, progress.sought(app))
    instance.add_run_tags(retried.run_id, {"dagster/will_retry": "true"})
    app.execute("update sumaclock.dagster_launches set launched_at = now() - interval '1 hour'")
    settings = app_db.settings.model_copy(update={"dagster_lost_seconds": 0})

    assert give_up_lost(instance, app, HERE, settings) == 2
    assert follow(instance, app) == 1

    run = get_run(app, runs[0])
    assert run.status is RunStatus.FAILED
    assert f"Dagster run {first.run_id} failed: It gave no sign of life for" in str(run.error)
    assert get_run(app, runs[1]).status is RunStatus.RUNNING


SERVER = """
import socket, subprocess, sys
where = sys.argv[1]
server = socket.socket(socket.AF_INET if where.isdigit() else socket.AF_UNIX)
server.bind(("127.0.0.1", int(where)) if where.isdigit() else where)
server.listen()
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
"""


@contextmanager
def a_server_with_a_process(where: str) -> Iterator[int]:
    """The id of the process that a server started which listens there, a port or a path. Both end with the block."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, where], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        yield pid
        server.kill()
        until(lambda: not psutil.pid_exists(pid), 10, "the end of the server's process")


def test_a_process_is_known_by_the_server_that_started_it(tmp_path: Path) -> None:
    port, path = free_port(), str(tmp_path / "server.sock")
    for where, address in ((str(port), {"host": "localhost", "port": port}), (path, {"socket": path})):
        with a_server_with_a_process(where) as pid:
            process = RunProcess(pid, time.time())
            assert is_seen(process, json.dumps(address))
            assert not is_seen(process, json.dumps({"host": "localhost", "port": free_port()}))
            assert not is_seen(process, "")
        assert not is_seen(process, json.dumps(address)), "it is gone"


def test_one_of_another_location_is_lost_with_its_process_where_that_was_seen(
    app_db: AppDatabase, app: Connection, instance: dg.DagsterInstance
) -> None:
    """Its code server died with it and says nothing, or nothing that proves it."""
    runs = ask(app, {"job": "nightly"}, 2)
    keys = {
        one.cron_run_id: str(one.launch_key)
        for one in progress.offer(app, location=HERE, assets=False, most=9, lease_seconds=60)
    }
    settings = app_db.settings.model_copy(update={"dagster_lost_seconds": 0})
    port = free_port()
    with a_server_with_a_process(str(port)) as pid, a_process() as stranger:
        seen = started(instance, pid, ELSEWHERE, port, **{"sumaclock/launch": keys[runs[0]]})
        unseen = started(instance, stranger, ELSEWHERE, **{"sumaclock/launch": keys[runs[1]]})
        find(instance, app, progress.sought(app))
        app.execute("update sumaclock.dagster_launches set launched_at = now() - interval '1 hour'")
        assert give_up_lost(instance, app, HERE, settings) == 0
        noted = {str(one.dagster_run_id): one.seen_on for one in progress.launched(app)}
        assert noted == {seen.run_id: this_machine(), unseen.run_id: ""}

    assert give_up_lost(instance, app, HERE, settings) == 1
    follow(instance, app)

    assert f"its process {pid} is gone" in str(get_run(app, runs[0]).error)
    assert get_run(app, runs[1]).status is RunStatus.RUNNING, "its number may have been another machine's"


def process_of(stack: TargetStack, run_id: int) -> int:
    """The id of the process that executes the run's Dagster run, once that is in its step."""

    def look() -> int | None:
        of_step = dg.DagsterEventType.STEP_START
        launched = stack.instance.get_runs(dg.RunsFilter(tags={"sumaclock/run": str(run_id)}))
        entries = [entry for run in launched for entry in stack.instance.all_logs(run.run_id, of_type=of_step)]
        return entries[0].dagster_event.pid if entries and entries[0].dagster_event else None

    return stack.until(look, f"the step of run {run_id}", 400)


@pytest.mark.timeout(900)
def test_who_is_killed_fails_and_who_is_only_left_behind_by_its_code_server_goes_on(cluster: TestCluster) -> None:
    launcher = {"run_launcher": {"module": "dagster", "class": "DefaultRunLauncher"}}
    names = ("code_server", "reloading_code_server", "webserver", "daemon", "worker")
    with target_stack(cluster, *names, lean=True, yaml_changes=launcher) as stack:
        config = {"ops": {"work_for": {"config": {"gate": str(stack.folder / "gate")}}}}
        payload = {"job": "invoice", "run_config": config}
        killed, with_server, left = (fire(stack.app, add_target_job(stack.app, payload, f"org {n}")) for n in range(3))
        processes = {run_id: process_of(stack, run_id) for run_id in (killed, with_server, left)}

        psutil.Process(processes[killed]).kill()
        run = stack.ended(killed)
        assert run.status is RunStatus.FAILED
        assert "terminated by signal 9 (SIGKILL)" in str(run.error)

        stack.processes.pop("code_server").kill()
        psutil.Process(processes[with_server]).kill()
        stack.start("code_server")
        run = stack.ended(with_server)
        assert run.status is RunStatus.FAILED
        assert f"its process {processes[with_server]} is gone" in str(run.error)
        assert stack.dagster_run(with_server).status is dg.DagsterRunStatus.FAILURE
        assert get_run(stack.app, left).status is RunStatus.RUNNING, "as silent as the other, and its process lives"
        export = {"job": "export", "location": ELSEWHERE}
        export["run_config"] = {"ops": {"write": {"config": {"month": "2026-12", "gate": str(stack.folder / "no")}}}}
        elsewhere = fire(stack.app, add_target_job(stack.app, export, "org elsewhere"))
        process = process_of(stack, elsewhere)
        is_noted = "select seen_on <> '' from sumaclock.dagster_launches where cron_run_id = %s"
        stack.until(lambda: stack.app.execute(is_noted, [elsewhere]).fetchone() == (True,) or None, "its process noted")
        stack.kill("reloading_code_server")
        run = stack.ended(elsewhere)
        assert run.status is RunStatus.FAILED
        assert f"its process {process} is gone" in str(run.error)

        (stack.folder / "gate").touch()
        assert stack.ended(left).status is RunStatus.DONE
