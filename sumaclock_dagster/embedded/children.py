"""Dagster's processes under supervision: started, started again when they die, and stopped in the right order."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from sumaclock_dagster.embedded.dagster_home import CODE_SERVER, RECEIVER
from sumaclock_dagster.embedded.processes import (
    Identity,
    ask_to_end,
    find,
    first_line,
    identify,
    kill_session,
    spawn,
    trim,
    wait_for_end,
)

BACKOFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
HEALTHY_AFTER_SECONDS = 120.0
# Beyond the grace time of handlers: a worker also has to write its end into Dagster's event log.
WORKER_SLACK_SECONDS = 10.0
# Dagster's own way of ending waits for a sensor that waits for news, for up to 20 s, and has nothing to save.
SERVER_SECONDS = 2.0
TAIL_LINES = 15
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(slots=True)
class Child:
    """One process and its restarts. `retry_at`: monotonic seconds at which a dead one is started again."""

    name: str
    command: Sequence[str]
    popen: subprocess.Popen[bytes]
    started_at: float
    deaths: int = 0
    retry_at: float | None = None


class Children:
    """Starts the named `commands`. `identities` keeps those of ended processes, since what they started may live on;
    `changed` is told all of them whenever one is added."""

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        environment: Mapping[str, str],
        mark: str,
        logs: Path,
        changed: Callable[[list[Identity]], None],
    ) -> None:
        self.identities: list[Identity] = []
        self._changed = changed
        self._commands = commands
        self._environment = environment
        self._mark = mark
        self._logs = logs
        self._children: dict[str, Child] = {}

    def start(self, name: str) -> None:
        command = self._commands[name]
        self._children[name] = Child(name, command, self._spawn(name, command), time.monotonic())

    def dead(self) -> list[str]:
        """Those that have ended and wait for nothing else: what each was, and the end of its log."""
        ended = [child for child in self._children.values() if child.popen.poll() is not None]
        return [f"The {child.name} ended ({_how(child.popen)}). {self._log_tail(child.name)}" for child in ended]

    def tend(self) -> list[str]:
        """Start dead ones again, each later than the time before, and keep logs short. Returns what to tell people."""
        for log in self._logs.glob("*.log"):
            trim(log)
        told = []
        for child in self._children.values():
            now = time.monotonic()
            if child.popen.poll() is None:
                if now - child.started_at > HEALTHY_AFTER_SECONDS:
                    child.deaths = 0
            elif child.retry_at is None:
                wait = BACKOFF_SECONDS[min(child.deaths, len(BACKOFF_SECONDS) - 1)]
                child.deaths, child.retry_at = child.deaths + 1, now + wait
                told.append(
                    f"The {child.name} ended ({_how(child.popen)}) and is started again in {wait:.0f} s. "
                    f"{self._log_tail(child.name)}"
                )
            elif now >= child.retry_at:
                child.popen, child.started_at, child.retry_at = self._spawn(child.name, child.command), now, None
                told.append(f"The {child.name} is started again.")
        return told

    def _spawn(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        popen = spawn(name, command, self._environment, self._logs / f"{name}.log")
        with suppress(psutil.NoSuchProcess):
            self.identities.append(identify(name, popen.pid, self._mark))
            self._changed(self.identities)
        return popen

    def _log_tail(self, name: str) -> str:
        file = self._logs / f"{name}.log"
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - 50_000))
            text = COLOURS.sub("", log.read().decode(errors="replace"))
        lines = text.rpartition(f"\n--- {name} started at ")[2].splitlines()[1:]
        # What went wrong stands between the stack traces, which are long.
        telling = [line for line in lines if line.strip() and not line.startswith((" ", "Traceback"))]
        return "\n".join([f"From {file}:", *(f"    {line}" for line in telling[-TAIL_LINES:])])


def stop_children(
    identities: Sequence[Identity], grace_seconds: float, hurry: Callable[[], bool], say: Callable[[str], None]
) -> None:
    """Stop these and all that they started, in an order that loses nothing. `hurry` cuts every wait short.

    First daemon and webserver, so that nobody launches anything. Then the Dagster runs: a worker lets its handlers
    finish within the grace time and gives back the rest, and what takes their requests goes after them. The code server
    stands still meanwhile, or its sensor would see workers end and reserve a place for new ones, for which the next
    start would wait; it has nothing to save.
    """
    code_servers = [identity for identity in identities if identity.name == CODE_SERVER]
    receivers = [identity for identity in identities if identity.name == RECEIVER]
    others = [identity for identity in identities if identity.name not in (CODE_SERVER, RECEIVER)]
    running = [process for process in map(find, others) if process is not None]
    ask_to_end(running)
    wait_for_end(running, SERVER_SECONDS, hurry)
    for identity in others:
        kill_session(identity)
    for process in filter(None, map(find, code_servers)):
        with suppress(psutil.Error):
            process.send_signal(signal.SIGSTOP)
    runs = [process for identity in code_servers for process in first_line(identity)]
    if runs:
        word = "Dagster run" if len(runs) == 1 else "Dagster runs"
        say(f"Waiting for {len(runs)} {word} to end, up to {grace_seconds + WORKER_SLACK_SECONDS:.0f} s")
        ask_to_end(runs)
        wait_for_end(runs, grace_seconds + WORKER_SLACK_SECONDS, hurry)
    for identity in [*code_servers, *receivers]:
        kill_session(identity)


def _how(popen: subprocess.Popen[bytes]) -> str:
    code = popen.poll()
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
