"""`sumaclock up` and `down` as people use them: on a cluster, a Dagster and ports of their own."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from zoneinfo import ZoneInfo

import psutil
import pytest

from sumaclock_dagster.clock.jobs import create_job, get_job
from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import connect
from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.embedded.ground import DEMO_JOB
from sumaclock_dagster.model import RunStatus
from sumaclock_dagster.outbox import queue_delivery
from sumaclock_dagster.queue.runs import fire, get_run
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import Task, TaskStatus
from tests.conftest import AppDatabase, TestCluster, new_home, remove_cluster
from tests.dagster_storage import dagster_home
from tests.up_stack import Up, postgres_of, processes_of, state, sumaclock
from tests.waiting import until

pytestmark = pytest.mark.stack

# Far more than a start or a stop takes: other tests run besides.
STUCK_SECONDS = 60
# Until the next minute's firing is shown, with as much patience.
NEXT_MINUTE_SECONDS = 120
# A start that takes so much of one processor is ready within 20 seconds where nothing else runs, as the README has it.
SECOND_START_CPU_SECONDS = 20


@pytest.fixture
def home() -> Iterator[Path]:
    folder = new_home()
    yield folder
    sumaclock("down", "--home", str(folder))
    remove_cluster(PrivateCluster(folder))


@pytest.fixture
def ups() -> Iterator[list[Up]]:
    started: list[Up] = []
    yield started
    for up in started:
        with suppress(ProcessLookupError):
            up.end()


def answers(address: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"{address}/server_info", timeout=2) as response:  # noqa: S310
        return bool(response.status == 200)
    return False


def cpu_seconds(home: Path, mark: str) -> float:
    """What all that runs in `home` has used, with those of its children that have ended."""
    processes = {process.pid: process for process in (*processes_of(mark), *postgres_of(home))}
    used = 0.0
    for process in processes.values():
        with suppress(psutil.Error):
            used += sum(process.cpu_times()[:4])
    return used


def demo_tasks(home: Path) -> list[Task]:
    """By their titles."""
    with connect(Settings(home=home).app_url, "test up") as app:
        return sorted(api.list_tasks(app, organization_id="demo"), key=lambda task: task.title)


@pytest.mark.timeout(400)
def test_the_whole_life_of_a_stack(home: Path, ups: list[Up]) -> None:
    # From nothing.
    up = Up(home, SUMACLOCK_GRACE_SECONDS="1")
    ups.append(up)
    ready = up.wait_for("Each run shows here when it has ended:")
    assert "Ready. The UI is at" in ready
    first = state(home)
    assert first.ready
    assert answers(first.address)
    assert int(first.address.rpartition(":")[2]) >= 3000

    # The demo's tasks are placed, and shown in local time and in UTC.
    tasks = demo_tasks(home)
    assert [task.title for task in tasks] == ["Hello, every week", "Hello, once"]
    for task in tasks:
        assert task.next_run_at is not None
        local = task.next_run_at.astimezone(ZoneInfo("Europe/Madrid"))
        assert f"{local:%Y-%m-%d %H:%M} {local.isoformat()[19:]} = {task.next_run_at:%Y-%m-%d %H:%M} UTC" in ready
    assert f"{tasks[0].next_run_at:%a}" == "Mon"

    # A second one in the same home is told so and changes nothing.
    refused = sumaclock("up", "--home", str(home))
    assert refused.returncode == 1
    assert f"runs already in {home} (process {up.process.pid})" in refused.stderr
    assert first.address in refused.stderr

    # No URL on any command line.
    assert all("postgresql" not in " ".join(process.cmdline()) for process in processes_of(first.supervisor.mark))

    # A process that dies is reported and started again.
    webserver = next(child for child in first.children if child.name == "webserver")
    psutil.Process(webserver.pid).kill()
    up.wait_for("The webserver ended (killed by SIGKILL) and is started again")
    up.wait_for("The webserver is started again.", 20)
    until(lambda: answers(first.address), 30, "the UI's answer")
    until(lambda: state(home).children[-1].name == "webserver" and len(state(home).children) == 5, 5, "up.json")

    # So is PostgreSQL, and Dagster gets over it.
    pids = {process.pid: process for process in postgres_of(home)}
    next(process for process in pids.values() if process.ppid() not in pids).kill()
    up.wait_for("PostgreSQL ended and is started again ...", 20)
    up.wait_for("PostgreSQL is started again.", 40)

    # pg_cron fires the demo job on its minute, and people see the run.
    output = up.wait_for("demo, organization demo,", NEXT_MINUTE_SECONDS)
    shown = re.search(r"(\d\d:\d\d) UTC.*  demo, organization demo, ([\d.]+) s late, took [\d.]+ s: done", output)
    assert shown, output
    assert float(shown[2]) < 5

    # What is asked of core-api comes to the demo's receiver, and people see it.
    with connect(Settings(home=home).app_url, "test up") as app:
        assert queue_delivery(
            app, idempotency_key="up-1", organization_id="o", user_id="u", path="/hello", body={"to": "you"}
        )
    up.wait_for('core-api got POST /hello, key up-1: {"to":', 20)

    # So does the task for the next minute, by way of core-api's stand-in.
    up.wait_for(f"core-api got POST /ai-task-runs, key ai_task_run:{tasks[1].id}:", NEXT_MINUTE_SECONDS)
    assert [task.status for task in demo_tasks(home)] == [TaskStatus.ACTIVE, TaskStatus.DONE]

    # A handler that is too long for the grace time is given back at the end, and its attempt does not count.
    settings = Settings(home=home)
    with connect(settings.app_url, "test up") as app, open_clock(app, settings.cron_url) as clock:
        job = create_job(
            app,
            clock,
            kind="demo",
            organization_id="long",
            user_id="u",
            payload={"sleep_seconds": 30},
            schedule="0 0 1 1 *",
        )
        run_id = fire(app, job.id)
        until(lambda: get_run(app, run_id).status is RunStatus.RUNNING, 10, "the run's start")
    stopped_at = time.monotonic()
    assert up.end(signal.SIGINT) == 0, up.output
    assert time.monotonic() - stopped_at < STUCK_SECONDS
    # The longest wait of a stop, so that none takes 20 seconds: the grace time, and time for the worker's own end.
    assert re.search(r"Waiting for \d Dagster runs? to end, up to 11 s", up.output)
    assert "Stopped." in up.output
    assert processes_of(first.supervisor.mark) == []
    assert postgres_of(home) == []
    assert not (home / "up.json").exists()

    # The second start repeats nothing and has all data.
    started_at = time.monotonic()
    done = sumaclock("up", "--detach", "--home", str(home), SUMACLOCK_GRACE_SECONDS="1")
    took = time.monotonic() - started_at
    assert done.returncode == 0, done.stdout + done.stderr
    assert "It goes on in the background" in done.stdout
    assert took < STUCK_SECONDS
    steps = [line.strip() for line in done.stdout.partition("  ok  ")[0].splitlines()]
    assert steps == ["Starting PostgreSQL", "Bringing roles, databases and schema up to date"]
    second = state(home)
    assert cpu_seconds(home, second.supervisor.mark) < SECOND_START_CPU_SECONDS
    # Nor was a process of Dagster's run to its end, as the making of its tables was in the first start.
    assert psutil.Process(second.supervisor.pid).cpu_times().children_user < 1
    assert answers(second.address)
    with connect(settings.app_url, "test up") as app:
        assert get_job(app, job.id).organization_id == "long"
        assert get_job(app, DEMO_JOB).schedule == "* * * * *"
        again = until(
            lambda: (run := get_run(app, run_id)).status is RunStatus.RUNNING and run, 30, "the given back run"
        )
        assert again.lost == 0
    assert [task.id for task in demo_tasks(home)] == [task.id for task in tasks]
    assert [task.status for task in demo_tasks(home)] == [TaskStatus.ACTIVE] * 2
    assert demo_tasks(home)[0].next_run_at == tasks[0].next_run_at

    # Everything killed at once, as by a power cut.
    victims = [*processes_of(second.supervisor.mark), *postgres_of(home), psutil.Process(second.supervisor.pid)]
    for process in victims:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(victims, 10)
    after_crash = sumaclock("up", "--detach", "--home", str(home), SUMACLOCK_GRACE_SECONDS="1")
    assert after_crash.returncode == 0, after_crash.stdout + after_crash.stderr
    third = state(home)
    with connect(settings.app_url, "test up") as app:
        assert get_job(app, job.id).organization_id == "long"

    # Only the supervisor killed: the rest goes on, until `down` ends it.
    psutil.Process(third.supervisor.pid).kill()
    until(lambda: not psutil.pid_exists(third.supervisor.pid), 10, "the supervisor's end")
    assert processes_of(third.supervisor.mark)
    down = sumaclock("down", "--home", str(home), SUMACLOCK_GRACE_SECONDS="1")
    assert down.returncode == 0, down.stderr
    assert processes_of(third.supervisor.mark) == []
    assert postgres_of(home) == []
    assert "Nothing runs" in sumaclock("down", "--home", str(home)).stdout


def test_a_stop_while_starting_leaves_nothing(home: Path, ups: list[Up]) -> None:
    up = Up(home)
    ups.append(up)
    up.wait_for("ok  Dagster's tables")
    mark = state(home).supervisor.mark
    assert up.end(signal.SIGTERM, 30) == 0, up.output
    assert "Ready" not in up.output
    assert processes_of(mark) == []
    assert postgres_of(home) == []

    # What was in the way is told with the log of the process at fault, and the rest is stopped.
    broken = sumaclock("up", "--home", str(home), SUMACLOCK_HANDLERS="no_such_module:handlers")
    assert broken.returncode == 1
    assert "The code-server ended (exit code 1)" in broken.stderr
    assert "no_such_module" in broken.stderr
    assert postgres_of(home) == []


def test_a_taken_port_is_refused(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused = sumaclock("up", "--home", str(home), "--port", str(port))
    assert refused.returncode == 1
    assert f"Port {port} on 127.0.0.1 is taken" in refused.stderr
    assert not (home / "data").exists()


@pytest.mark.timeout(200)
def test_a_server_that_the_environment_names(
    app_db: AppDatabase, cluster: TestCluster, home: Path, ups: list[Up]
) -> None:
    urls = {
        "SUMACLOCK_DATABASE_URL": app_db.app_url,
        "SUMACLOCK_OWNER_DATABASE_URL": app_db.owner_url,
        "SUMACLOCK_CRON_DATABASE_URL": app_db.cron_url,
    }
    # Without Dagster's URL, and as a role that may do too much: refused with a remedy, before anything starts.
    lacking = sumaclock("up", "--home", str(home), **urls)
    assert lacking.returncode == 1
    assert "SUMACLOCK_DAGSTER_DATABASE_URL must be set too" in lacking.stderr
    with dagster_home(cluster, f"{app_db.name}_up") as (_, dagster_url):
        urls["SUMACLOCK_DAGSTER_DATABASE_URL"] = dagster_url
        strong = sumaclock("up", "--home", str(home), **urls | {"SUMACLOCK_DATABASE_URL": app_db.superuser_url})
        assert strong.returncode == 1
        assert "can do more than its work" in strong.stderr
        assert processes_of(home.name) == []

        # On a terminal, which then goes away: that stops everything in good order, too.
        up, terminal = _up_on_a_terminal(home, urls)
        ups.append(up)
        until(lambda: (home / "up.json").exists() and state(home).ready, 180, "the stack on the named server")
        running = state(home)
        assert answers(running.address)
        processes = processes_of(running.supervisor.mark)
        assert len(processes) >= 4
        assert all("SUMACLOCK_OWNER_DATABASE_URL" not in process.environ() for process in processes)
        assert not (home / "data").exists()
        with connect(app_db.app_url, "test up") as app:
            assert app.execute("select count(*) from sumaclock.cron_jobs").fetchone() == (0,)
        os.close(terminal)
        up.process.wait(30)
        assert processes_of(running.supervisor.mark) == []
        with connect(app_db.app_url, "test up") as app:
            assert app.execute("select 1").fetchone() == (1,)


@pytest.mark.timeout(200)
def test_a_second_ctrl_c_waits_for_no_handler(home: Path, ups: list[Up]) -> None:
    up = Up(home, "--no-demo", SUMACLOCK_GRACE_SECONDS="300")
    ups.append(up)
    up.wait_for("Ready. The UI is at")
    settings = Settings(home=home)
    with connect(settings.app_url, "test up") as app, open_clock(app, settings.cron_url) as clock:
        owner = {"organization_id": "o", "user_id": "u"}
        job = create_job(app, clock, kind="demo", **owner, payload={"sleep_seconds": 200}, schedule="0 0 1 1 *")
        run_id = fire(app, job.id)
        until(lambda: get_run(app, run_id).status is RunStatus.RUNNING, 10, "the run's start")
    worker = next(
        process for process in processes_of(state(home).supervisor.mark) if "spawn_main" in str(process.cmdline())
    )
    # A worker that does not answer at all.
    worker.suspend()
    mark = state(home).supervisor.mark
    up.process.send_signal(signal.SIGINT)
    up.wait_for(" to end, up to ", 20)
    stopped_at = time.monotonic()
    assert up.end(signal.SIGINT) == 0, up.output
    assert time.monotonic() - stopped_at < 15
    assert processes_of(mark) == []
    assert postgres_of(home) == []


def _up_on_a_terminal(home: Path, urls: dict[str, str]) -> tuple[Up, int]:
    ours, theirs = pty.openpty()
    up = Up(home, "--no-demo", terminal=theirs, **urls)
    os.close(theirs)
    return up, ours
