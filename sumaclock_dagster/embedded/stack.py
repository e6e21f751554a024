"""`sumaclock up` and `sumaclock down`: everything in its order, and back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from uuid import uuid4

from sumaclock_dagster.db import connect
from sumaclock_dagster.embedded import ground, health
from sumaclock_dagster.embedded.children import Children, stop_children
from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.embedded.dagster_home import (
    CODE_SERVER,
    DAEMON,
    RECEIVER,
    WEBSERVER,
    DagsterHome,
    bring_schema_up_to_date,
    commands,
    make_dagster_home,
)
from sumaclock_dagster.embedded.demo_tasks import ensure_demo_tasks, told
from sumaclock_dagster.embedded.follow import Follow
from sumaclock_dagster.embedded.processes import ask_to_end, find, first_line, identify, kill_session, wait_for_end
from sumaclock_dagster.embedded.receiver import GOT
from sumaclock_dagster.embedded.show import Show
from sumaclock_dagster.embedded.stop_requests import Stopped, StopRequests
from sumaclock_dagster.embedded.ui_port import any_free_port, hold_port
from sumaclock_dagster.embedded.up_file import UpNote, only_one, read_up_file, remove_up_file
from sumaclock_dagster.embedded.watch import Watch
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.settings import Settings

READY_SECONDS = 180.0
WORKER_SECONDS = 60.0
LOOK_SECONDS = 0.5
CLUSTER_LOOK_SECONDS = 2.0
# A supervisor that stops waits for workers, PostgreSQL and Dagster's servers; beyond this it hangs.
SUPERVISOR_SLACK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class UpOptions:
    """port: of the UI, or None for the first free one from 3000 on. demo: make the demo job and tasks."""

    port: int | None = None
    demo: bool = True


def run_up(settings: Settings, options: UpOptions, show: Show) -> None:
    """Start everything, tell what happens, and stop everything when a signal asks for it. Returns after that.

    Raises SumaclockError when something cannot be started; what had been started is stopped before.
    """
    home, mark = settings.home.absolute(), uuid4().hex
    with StopRequests() as requests, only_one(home), ExitStack() as held:
        try:
            stop_leftovers(settings, requests.hurry, show)
            note = UpNote(home, identify("supervisor", os.getpid(), mark))
            port = held.enter_context(hold_port(options.port))
            with _databases(settings, requests, show) as cluster:
                ground.ensure_runners(settings)
                # Never where the requests may be meant: a stand-in would take them for done.
                stand_in = options.demo and cluster is not None and settings.core_api_url is None
                receiver_port = any_free_port() if stand_in else None
                dagster = make_dagster_home(settings, mark, any_free_port(), port, receiver_port)
                with _dagster(settings, dagster, mark, note, requests, show) as children:
                    if options.demo:
                        with show.step("Demo job and tasks"):
                            ground.ensure_demo_job(settings)
                            tasks = ensure_demo_tasks(settings, "log" if receiver_port is None else "core_api")
                    note.change(address=dagster.address, ready=True)
                    show.ready(dagster.address, home / "logs")
                    if options.demo:
                        show.say("The demo's tasks fire next at:")
                        show.say("\n".join(f"  {told(task)}" for task in tasks))
                        show.say("The demo job fires every minute. Each run shows here when it has ended:")
                    if receiver_port is not None:
                        show.say("Requests to core-api go to a receiver that does nothing, and show here as well.")
                    show.say("")
                    _watch(settings, cluster, children, requests, show)
        except Stopped:
            pass
        except SumaclockError:
            # A Ctrl-C in the terminal also reaches initdb and the like, and then their end is no failure.
            if not requests.stop:
                raise
        remove_up_file(home)
        show.say("Stopped.")


def run_down(settings: Settings, show: Show) -> None:
    """Stop what `sumaclock up` has started in this home, however that one ended. Raises SumaclockError."""
    home = settings.home.absolute()
    state = read_up_file(home)
    supervisor = find(state.supervisor) if state else None
    if state and supervisor:
        with show.step("Stopping everything"):
            ask_to_end([supervisor])
            if not wait_for_end([supervisor], settings.grace_seconds + SUPERVISOR_SLACK_SECONDS, lambda: False):
                kill_session(state.supervisor)
    if not home.exists():
        show.say(f"Nothing runs in {home}.")
        return
    with only_one(home):
        found = stop_leftovers(settings, lambda: False, show)
        cluster = ground.private_cluster(settings, show.say)
        found = (cluster is not None and cluster.stop()) or found
    if not supervisor and not found:
        show.say(f"Nothing runs in {home}.")


def stop_leftovers(settings: Settings, hurry: Callable[[], bool], show: Show) -> bool:
    """Stop Dagster's processes that a killed `sumaclock up` left behind, and forget it. False when there were none."""
    home = settings.home.absolute()
    state = read_up_file(home)
    if state is None:
        return False
    left = [identity for identity in state.children if find(identity) or first_line(identity)]
    if left:
        with show.step("Stopping what an earlier `sumaclock up` left running"):
            stop_children(state.children, settings.grace_seconds, hurry, show.say)
    remove_up_file(home)
    return bool(left)


@contextmanager
def _databases(settings: Settings, requests: StopRequests, show: Show) -> Iterator[PrivateCluster | None]:
    """The private cluster, running; None where the environment names a server, which is then ready."""
    cluster = ground.private_cluster(settings, lambda text: _detail(show, text))
    if cluster is None:
        with show.step("The server that SUMACLOCK_DATABASE_URL names"):
            ground.prepare_named_server(settings, lambda text: _detail(show, text))
        yield None
        return
    try:
        with show.step("PostgreSQL with pg_cron"):
            cluster.start()
        requests.check()
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def _dagster(
    settings: Settings, dagster: DagsterHome, mark: str, note: UpNote, requests: StopRequests, show: Show
) -> Iterator[Children]:
    """Dagster's three processes, ready, a worker where the settings want one, and the demo's receiver."""
    with show.step("Dagster's tables"):
        bring_schema_up_to_date(dagster, always=settings.database_url is not None)
    logs = settings.home.absolute() / "logs"
    logs.mkdir(mode=0o700, exist_ok=True)
    children = Children(
        commands(dagster), dagster.environment, mark, logs, lambda identities: note.change(children=identities)
    )

    def wait(ready: Callable[[], bool]) -> None:
        if not _wait(ready, READY_SECONDS, children, requests):
            raise SumaclockError(f"It is not ready after {READY_SECONDS:.0f} s. The logs are in {logs}.")

    try:
        since = time.time()
        if dagster.receiver_port is not None:
            children.start(RECEIVER)
        with show.step("Dagster's code server"):
            children.start(CODE_SERVER)
            wait(lambda: health.code_server_listens(dagster))
        with show.step("Dagster's UI and daemon"):
            children.start(DAEMON)
            children.start(WEBSERVER)
            wait(lambda: health.location_loaded(dagster) and health.daemon_beats(dagster, since))
        if settings.min_workers > 0:
            with show.step("First worker"):
                # Without it runs wait, but nothing is wrong yet: the sensor tries again.
                if not _wait(lambda: ground.a_worker_lives(settings), WORKER_SECONDS, children, requests):
                    _detail(show, f"No worker yet after {WORKER_SECONDS:.0f} s; the UI shows why.")
        yield children
    finally:
        show.say("\nStopping. Ctrl-C once more: without waiting for handlers.")
        with show.step("Stopping Dagster"):
            stop_children(children.identities, settings.grace_seconds, requests.hurry, lambda text: _detail(show, text))
        note.change(children=[], ready=False)


def _detail(show: Show, text: str) -> None:
    show.say(f"      {text}")


def _wait(ready: Callable[[], bool], seconds: float, children: Children, requests: StopRequests) -> bool:
    """Whether it became so. Raises Stopped, and SumaclockError when a process ends meanwhile."""
    deadline = time.monotonic() + seconds
    while not ready():
        if dead := children.dead():
            raise SumaclockError("\n".join(dead))
        if time.monotonic() > deadline:
            return False
        requests.wait(0.1)
        requests.check()
    return True


def _watch(
    settings: Settings, cluster: PrivateCluster | None, children: Children, requests: StopRequests, show: Show
) -> None:
    """Show runs and keep everything running, until a stop is asked for."""
    watch = Watch(lambda: connect(settings.app_url, ground.APPLICATION))
    arrivals = Follow(settings.home.absolute() / "logs" / f"{RECEIVER}.log", GOT)
    cluster_looked_at = time.monotonic()
    try:
        while not requests.wait(LOOK_SECONDS):
            ended, told = watch.look()
            for run in ended:
                show.run(run)
            for text in [*arrivals.look(), *told, *children.tend()]:
                show.say(text)
            if cluster is not None and time.monotonic() - cluster_looked_at > CLUSTER_LOOK_SECONDS:
                cluster_looked_at = time.monotonic()
                if cluster.status().pid is None:
                    show.say("PostgreSQL ended and is started again ...")
                    cluster.start()
                    show.say("PostgreSQL is started again.")
    finally:
        watch.close()
