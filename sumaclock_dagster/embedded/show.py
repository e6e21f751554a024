"""How the stack tells what it does; the command line brings the terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from sumaclock_dagster.model import Run


class Show(Protocol):
    def say(self, text: str) -> None:
        """One or more whole lines. Never raises: a terminal that has gone must not keep anything from stopping."""

    def step(self, what: str) -> AbstractContextManager[None]:
        """Something that takes a moment: shown while it goes on, and with its seconds when it has ended well."""

    def ready(self, address: str, logs: Path) -> None:
        """Everything runs: where the UI and the logs are."""

    def run(self, run: Run) -> None:
        """A run has ended."""
