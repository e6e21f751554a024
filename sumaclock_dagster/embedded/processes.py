"""Processes told apart by pid and start time, so that a signal never reaches somebody else's."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

MARK = "SUMACLOCK_UP_MARK"
# A corrected system clock moves the start times that the kernel reports, by a little.
SAME_START_SECONDS = 2.0
POLL_SECONDS = 0.05
TRACKER_SECONDS = 5.0
LOG_MAX_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that we started. `started`: seconds since the epoch. A pid is used again; the two together are not.

    mark: the value of SUMACLOCK_UP_MARK in its environment, which all that it starts inherits.
    """

    name: str
    pid: int
    started: float
    mark: str


def identify(name: str, pid: int, mark: str) -> Identity:
    """Raises psutil.NoSuchProcess when it has gone."""
    return Identity(name, pid, psutil.Process(pid).create_time(), mark)


def find(identity: Identity) -> psutil.Process | None:
    """The living process of this identity. A zombie has ended; somebody else's process with its pid is not it."""
    with suppress(psutil.Error):
        process = psutil.Process(identity.pid)
        same = abs(process.create_time() - identity.started) < SAME_START_SECONDS
        if same and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def spawn(name: str, command: Sequence[str], environment: Mapping[str, str], log_file: Path) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that a Ctrl-C in the terminal does not reach it. Its output is
    appended to `log_file`."""
    with log_file.open("ab") as log:
        log.write(f"\n--- {name} started at {time.strftime('%Y-%m-%d %H:%M:%S %z')}\n".encode())
        log.flush()
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )


def trim(log_file: Path, max_bytes: int = LOG_MAX_BYTES) -> None:
    """Move a log that has grown long to `.log.1`, over the one before. Who appends to it goes on at its new end."""
    if log_file.stat().st_size > max_bytes:
        shutil.copyfile(log_file, log_file.with_suffix(".log.1"))
        os.truncate(log_file, 0)


def followers(leader: Identity) -> list[psutil.Process]:
    """The living processes of the session that `leader` opened, without the leader, which may have ended already.

    Once it has, its pid says little: another session may have had that number since. Then only the mark counts.
    """
    leads = find(leader) is not None
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid == leader.pid or os.getsid(process.pid) != leader.pid:
                continue
            if process.status() != psutil.STATUS_ZOMBIE and (leads or process.environ().get(MARK) == leader.mark):
                found.append(process)
    return found


def first_line(leader: Identity) -> list[psutil.Process]:
    """Those followers that no other follower started: a code server's Dagster runs, but not what handlers started."""
    members = followers(leader)
    pids = {process.pid for process in members}
    found = []
    for process in members:
        with suppress(psutil.Error):
            # It ignores signals and ends with its code server.
            if process.ppid() not in pids and not _is_tracker(process):
                found.append(process)
    return found


def ask_to_end(processes: Sequence[psutil.Process]) -> None:
    """SIGTERM, once to each. psutil compares start times before it signals."""
    for process in processes:
        with suppress(psutil.Error):
            process.terminate()


def wait_for_end(processes: Sequence[psutil.Process], seconds: float, hurry: Callable[[], bool]) -> bool:
    """Whether all have ended within `seconds`. Stops waiting as soon as `hurry` says so."""
    deadline = time.monotonic() + seconds
    while any(_lives(process) for process in processes):
        if time.monotonic() >= deadline or hurry():
            return False
        time.sleep(POLL_SECONDS)
    return True


def kill_session(leader: Identity) -> None:
    """Kill the leader, if it lives, and whatever is left of its session."""
    trackers = []
    for process in [*filter(None, [find(leader)]), *followers(leader)]:
        with suppress(psutil.Error):
            if _is_tracker(process):
                trackers.append(process)
            else:
                process.kill()
    # Once the others are gone they remove those processes' semaphores, which else stayed in memory, and end.
    wait_for_end(trackers, TRACKER_SECONDS, lambda: False)
    for process in trackers:
        with suppress(psutil.Error):
            process.kill()


def _is_tracker(process: psutil.Process) -> bool:
    """Whether it is multiprocessing's, one beside each code server. Raises psutil.Error."""
    return "multiprocessing.resource_tracker" in " ".join(process.cmdline())


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
