"""A signal reaches what we started and nobody else, however pids are used again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from sumaclock_dagster.embedded.children import Children, stop_children
from sumaclock_dagster.embedded.dagster_home import CODE_SERVER, DAEMON
from sumaclock_dagster.embedded.processes import (
    MARK,
    Identity,
    find,
    first_line,
    followers,
    identify,
    kill_session,
    spawn,
    trim,
)
from sumaclock_dagster.embedded.stop_requests import Stopped, StopRequests
from sumaclock_dagster.embedded.up_file import UpNote, only_one, read_up_file
from sumaclock_dagster.model import SumaclockError
from tests.waiting import until

# Starts a process that starts one more, and waits.
FAMILY = """
import subprocess, sys, time
child = "import subprocess, time; subprocess.Popen(['sleep', '300']); time.sleep(300)"
subprocess.Popen([sys.executable, "-c", child])
time.sleep(300)
"""
# A run that leaves a note when it is asked to end, and one that does not listen.
POLITE = """
import pathlib, signal, sys, time
note = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: (note.with_suffix(".ended").touch(), sys.exit()))
note.with_suffix(".ready").touch()
time.sleep(300)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
SERVER = """
import subprocess, sys, time
for code in sys.argv[2:]:
    subprocess.Popen([sys.executable, "-c", code, sys.argv[1]])
time.sleep(300)
"""

# As Dagster's code server: semaphores that its children would share.
SHARER = """
import multiprocessing, pathlib, sys, time
event = multiprocessing.get_context("spawn").Event()
pathlib.Path(sys.argv[1]).write_text(event._flag._semlock.name)
time.sleep(300)
"""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Identity]]:
    """A leader with a child and a grandchild, in a session of their own."""
    popen = spawn("leader", [sys.executable, "-c", FAMILY], os.environ | {MARK: "ours"}, tmp_path / "log")
    leader = identify("leader", popen.pid, "ours")
    until(lambda: len(followers(leader)) == 2, 10, "the family")
    yield popen, leader
    for process in followers(leader):
        process.kill()
    with suppress(ProcessLookupError):
        popen.kill()
    popen.wait()


def test_a_pid_alone_is_no_identity(family: tuple[subprocess.Popen[bytes], Identity]) -> None:
    _, leader = family
    assert find(leader) is not None
    impostor = replace(leader, started=leader.started - 60)
    assert find(impostor) is None
    # Its session is that of another process with this pid, and what runs there is not marked.
    assert followers(replace(impostor, mark="theirs")) == []
    kill_session(replace(impostor, mark="theirs"))
    assert find(leader) is not None
    assert len(followers(leader)) == 2


def test_what_a_dead_leader_left_is_known_by_its_mark(family: tuple[subprocess.Popen[bytes], Identity]) -> None:
    popen, leader = family
    popen.kill()
    popen.wait()
    assert find(leader) is None
    assert len(followers(leader)) == 2
    assert followers(replace(leader, mark="theirs")) == []
    # Asked to end is the child alone; its own child is the child's business, until all are killed.
    assert len(first_line(leader)) == 1
    left = followers(leader)
    kill_session(leader)
    psutil.wait_procs(left, 5)
    assert followers(leader) == []


@pytest.mark.skipif(not Path("/dev/shm").exists(), reason="Semaphores are files on Linux alone")  # noqa: S108
def test_what_is_killed_leaves_no_semaphore_behind(tmp_path: Path) -> None:
    name = tmp_path / "name"
    popen = spawn("sharer", [sys.executable, "-c", SHARER, str(name)], os.environ | {MARK: "ours"}, tmp_path / "log")
    leader = identify("sharer", popen.pid, "ours")
    until(lambda: name.exists() and name.read_text(), 30, "its semaphore")
    semaphore = Path("/dev/shm") / f"sem.{name.read_text().lstrip('/')}"  # noqa: S108
    assert semaphore.exists()
    kill_session(leader)
    popen.wait()
    assert not semaphore.exists()
    assert followers(leader) == []


def test_a_code_server_stands_still_while_its_runs_end(tmp_path: Path) -> None:
    """Bystanders live on; the run that ends in good order has time to, and one that does not is killed."""
    note = tmp_path / "note"
    environment = os.environ | {MARK: "ours"}
    seen: list[Identity] = []
    commands = {CODE_SERVER: [sys.executable, "-c", SERVER, str(note), POLITE, DEAF], DAEMON: ["sleep", "300"]}
    children = Children(commands, environment, "ours", tmp_path, lambda identities: seen.append(identities[-1]))
    bystander = subprocess.Popen(["sleep", "300"], env=environment, start_new_session=True)
    try:
        children.start(CODE_SERVER)
        children.start(DAEMON)
        until(lambda: note.with_suffix(".ready").exists() and len(first_line(seen[0])) == 2, 10, "both runs")
        told: list[str] = []
        stop_children(seen, 0.5, lambda: note.with_suffix(".ended").exists(), told.append)
        assert "Waiting for 2 Dagster runs to end" in told[0]
        assert note.with_suffix(".ended").exists()
        assert until(lambda: not followers(seen[0]), 5, "the end of all")
        assert [find(identity) for identity in seen] == [None, None]
        assert bystander.poll() is None
    finally:
        stop_children(seen, 0, lambda: True, lambda text: None)
        bystander.kill()
        bystander.wait()


def test_a_dead_child_is_told_with_its_error_and_started_again_ever_later(tmp_path: Path) -> None:
    code = "raise RuntimeError('no luck')"
    children = Children({DAEMON: [sys.executable, "-c", code]}, os.environ, "ours", tmp_path, lambda identities: None)
    children.start(DAEMON)
    first = until(children.tend, 10, "the first death")
    assert "The daemon ended (exit code 1) and is started again in 1 s." in first[0]
    assert "RuntimeError: no luck" in first[0]
    assert "Traceback" not in first[0]
    assert until(children.tend, 10, "the restart") == ["The daemon is started again."]
    assert "is started again in 2 s." in until(children.tend, 10, "the second death")[0]


def test_a_long_log_is_cut_while_it_is_written(tmp_path: Path) -> None:
    log, go_on = tmp_path / "daemon.log", tmp_path / "go on"
    code = "import os, sys, time; print('a' * 100)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\nprint('b')"
    popen = spawn("daemon", [sys.executable, "-u", "-c", code, str(go_on)], os.environ, log)
    until(lambda: "a" * 100 in log.read_text(), 10, "the first line")
    trim(log, max_bytes=1000)
    assert "a" * 100 in log.read_text()
    trim(log, max_bytes=50)
    assert "a" * 100 in (tmp_path / "daemon.log.1").read_text()
    go_on.touch()
    assert popen.wait(10) == 0
    assert log.read_text() == "b\n"


def test_signals_are_counted_and_a_hang_up_under_nohup_is_none() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequests() as requests:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not requests.wait(0.1)
            os.kill(os.getpid(), signal.SIGTERM)
            assert requests.wait(5)
            assert not requests.hurry()
            with pytest.raises(Stopped):
                requests.check()
            os.kill(os.getpid(), signal.SIGINT)
            until(requests.hurry, 5, "the second signal")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGHUP, before)


def test_up_json_is_whole_and_one_up_holds_a_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    supervisor = identify("supervisor", os.getpid(), "ours")
    with only_one(home):
        note = UpNote(home, supervisor)
        note.change(address="http://127.0.0.1:3000", ready=True, children=[replace(supervisor, name="daemon")])
        with pytest.raises(SumaclockError, match=r"runs already in .* and shows its UI at http://127.0.0.1:3000"):
            only_one(home).__enter__()
    found = read_up_file(home)
    assert found is not None
    assert found.supervisor == supervisor
    assert [child.name for child in found.children] == ["daemon"]
    (home / "up.json").write_text('{"supervisor": ')
    assert read_up_file(home) is None
    with only_one(home):
        assert home.stat().st_mode & 0o777 == 0o711
