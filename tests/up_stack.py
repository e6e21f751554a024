"""A `sumaclock up` of its own for tests: started, read, signalled, and ended whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil

from sumaclock_dagster.embedded.processes import MARK
from sumaclock_dagster.embedded.up_file import UpFile, read_up_file
from tests.waiting import until

READY_SECONDS = 120


class Up:
    """`sumaclock up` in `home`, in a session of its own. `output`: what it has said so far.

    terminal: a terminal's file descriptor, which then gets the output and controls the session.
    """

    def __init__(self, home: Path, *options: str, terminal: int | None = None, **environment: str) -> None:
        self.home = home
        self._lines: list[str] = []
        command = [*SUMACLOCK, "up", "--home", str(home), *options]
        self.process = subprocess.Popen(
            command if terminal is None else [sys.executable, "-c", ON_TERMINAL, *command],
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=subprocess.PIPE if terminal is None else terminal,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1", **environment},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def wait_for(self, text: str, timeout_seconds: float = READY_SECONDS) -> str:
        """All output, once `text` is in it. Fails when the process ends before."""

        def seen() -> bool:
            assert self.process.poll() is None or text in self.output, self.output
            return text in self.output

        until(seen, timeout_seconds, f"{text!r} in the output of `sumaclock up`")
        return self.output

    def end(self, number: int = signal.SIGINT, timeout_seconds: float = 60) -> int:
        """Signal the supervisor alone and return its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(timeout_seconds)
        self._reader.join(5)
        return code

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.append(line)


# Makes standard input the controlling terminal of the new session, whose end then sends SIGHUP.
ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
SUMACLOCK = (sys.executable, "-m", "sumaclock_dagster.cli.main")


def sumaclock(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SUMACLOCK, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=180,
        check=False,
    )


def state(home: Path) -> UpFile:
    found = read_up_file(home)
    assert found is not None
    return found


def processes_of(mark: str) -> list[psutil.Process]:
    """Everything that a `sumaclock up` with this mark has started and that lives."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def postgres_of(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if Path(process.cwd()) == (home / "data").resolve() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
