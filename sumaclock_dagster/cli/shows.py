"""How `up` and `down` show what they do: to people, or to programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from sumaclock_dagster.cli.records import run_record
from sumaclock_dagster.embedded.watch import line
from sumaclock_dagster.model import Run


class Terminal:
    """Steps with their seconds; a line that moves only where somebody sees it. Letters that every locale has.

    A terminal or a pipe that has gone must not keep anything from being stopped, so no method raises for it.
    """

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)

    def say(self, text: str) -> None:
        # rich ends the process for a broken pipe.
        with suppress(OSError, SystemExit):
            encoding = self._console.encoding
            self._console.print(text.encode(encoding, "replace").decode(encoding))

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        moving = self._console.status(what, spinner="line") if self._console.is_terminal else None
        with suppress(OSError, SystemExit):
            if moving:
                moving.start()
        try:
            yield
        finally:
            with suppress(OSError, SystemExit):
                if moving:
                    moving.stop()
        self.say(f"  ok  {what} ({time.monotonic() - started:.1f} s)")

    def ready(self, address: str, logs: Path) -> None:
        self.say(f"\nReady. The UI is at {address}, and logs are in {logs}.")

    def run(self, run: Run) -> None:
        self.say(line(run))


class JsonLines:
    """One object a line: {"event": "step" | "ready" | "run" | "note", ...}; runs have the fields of `runs list --json`.

    A pipe that has gone must not keep anything from being stopped, so no method raises for it.
    """

    def say(self, text: str) -> None:
        if text.strip():
            _print({"event": "note", "text": text.strip()})

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        _print({"event": "step", "step": what, "seconds": round(time.monotonic() - started, 3)})

    def ready(self, address: str, logs: Path) -> None:
        _print({"event": "ready", "address": address, "logs": str(logs)})

    def run(self, run: Run) -> None:
        _print({"event": "run", **run_record(run)})


def _print(record: dict[str, Any]) -> None:
    with suppress(OSError, ValueError):
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()
