"""A process that dies by SIGKILL in the middle of a loop that mends: right before a function of ours is called.

python -m tests.loop_process <loop> <module:name> <first> <second> [<mode>]

first, second: the URLs of the app database and of pg_cron's; for prune_dagster the folder and the URL of an instance.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.dagster_history import open_storage
from sumaclock_dagster.db import connect
from sumaclock_dagster.defs.dagster_history import prune
from sumaclock_dagster.model import ClockMode
from sumaclock_dagster.reconcile.heartbeat import beat
from sumaclock_dagster.reconcile.repair import repair
from sumaclock_dagster.reconcile.sync import sync
from tests.dagster_storage import dagster_instance

RETENTION_DAYS = 30


def dies(loop: str, where: str, first: str, second: str, mode: ClockMode = "jobs") -> bool:
    """Run it in a process of its own. Whether that died where it should."""
    command = [sys.executable, "-m", "tests.loop_process", loop, where, first, second, mode]
    return subprocess.run(command, check=False, timeout=120).returncode == -signal.SIGKILL


def main(loop: str, where: str, first: str, second: str, mode: ClockMode) -> None:
    _die_before(where)
    if loop == "prune_dagster":
        prune_dagster(Path(first), second)
        return
    with connect(first, "test loop") as app, open_clock(app, second, mode) as clock:
        if loop == "heartbeat":
            beat(app, RETENTION_DAYS)
        elif loop == "repair":
            repair(app, clock)
        else:
            sync(app, clock)


def prune_dagster(folder: Path, url: str) -> None:
    before = datetime.now(UTC) - timedelta(days=RETENTION_DAYS)
    with dagster_instance(folder, url) as instance, open_storage(url, "test loop") as storage:
        prune(instance, storage, None, before, lambda _: None)


def _die_before(where: str) -> None:
    module, _, path = where.partition(":")
    *owners, name = path.split(".")
    owner: Any = reduce(getattr, owners, import_module(module))
    setattr(owner, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
