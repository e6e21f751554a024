"""up.json: which processes `sumaclock up` has started, for `sumaclock down` and for the next `up` after a crash."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sumaclock_dagster.embedded.processes import Identity
from sumaclock_dagster.model import SumaclockError

UP_FILE = "up.json"
LOCK_FILE = "up.lock"


@dataclass(frozen=True, slots=True)
class UpFile:
    """supervisor: the `sumaclock up` itself. children: every process that it started and has not seen the end of.
    address: where the UI is. ready: everything had started well."""

    supervisor: Identity
    children: list[Identity] = field(default_factory=list)
    address: str = ""
    ready: bool = False


def read_up_file(home: Path) -> UpFile | None:
    """None when there is none; a damaged one says nothing either."""
    try:
        raw = json.loads((home / UP_FILE).read_text("utf-8"))
        return UpFile(
            Identity(**raw["supervisor"]),
            [Identity(**child) for child in raw["children"]],
            raw["address"],
            raw["ready"],
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


class UpNote:
    """The up.json of a running `sumaclock up`, written anew with each change and removed at the end."""

    def __init__(self, home: Path, supervisor: Identity) -> None:
        self._home = home
        self._state = UpFile(supervisor)
        self.change()

    def change(self, **values: Any) -> None:
        """Takes the fields of UpFile. Replaces the file as a whole, so that a crash leaves the old or the new one."""
        self._state = replace(self._state, **values)
        unfinished = self._home / f"{UP_FILE}.new"
        unfinished.write_text(json.dumps(asdict(self._state), indent=1), "utf-8")
        unfinished.chmod(0o600)
        unfinished.replace(self._home / UP_FILE)


def remove_up_file(home: Path) -> None:
    (home / UP_FILE).unlink(missing_ok=True)


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Hold the lock of this home. Raises SumaclockError when another `sumaclock up` or `down` has it."""
    if not home.exists():
        home.mkdir(parents=True)
        # PostgreSQL's user has to pass through, whatever the umask; what must be private below it has its own mode.
        home.chmod(0o711)
    lock = os.open(home / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SumaclockError(_who_runs(home)) from None
    else:
        yield
    finally:
        os.close(lock)


def _who_runs(home: Path) -> str:
    state = read_up_file(home)
    if state is None:
        return f"Another `sumaclock up` or `sumaclock down` is at work in {home}. Wait for it, or end it."
    where = f" and shows its UI at {state.address}" if state.ready else " and is starting"
    return f"sumaclock runs already in {home} (process {state.supervisor.pid}){where}. Stop it with `bin/down`."
