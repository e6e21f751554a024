"""Workers in processes of their own, for tests that kill or pause one: `python -m MODULE URL JSON`.

JSON holds settings by name, clock_shift_seconds (how far this process's own clock is off), and what the module's
handlers want to know. The process prints "started <worker id>" once its worker lives, and ends with it or on SIGTERM.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.worker import Worker, WorkerConfig


def start(module: ModuleType, url: str, *, kills: bool = False, **settings: object) -> subprocess.Popen[str]:
    """Start the process and return once its worker lives. kills: it is to kill itself, which may be sooner."""
    process = subprocess.Popen(
        [sys.executable, "-m", module.__name__, url, json.dumps({**settings, "kills": True} if kills else settings)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("started ") or kills, f"the worker process said {line!r}"
    return process


def serve(make_handlers: Callable[[str, dict[str, Any]], Handlers]) -> None:
    """The whole process. make_handlers: of the URL and the settings, from which it takes those that are for it."""
    url, settings = sys.argv[1], json.loads(sys.argv[2])
    shift, real = settings.pop("clock_shift_seconds", 0), time.time
    time.time = lambda: real() + shift
    logging.basicConfig(level=logging.WARNING)
    handlers = make_handlers(url, settings)
    config = WorkerConfig.from_settings(
        Settings(database_url=url).model_copy(update=settings), worker_id=None, dagster_run_id=None, code_version="test"
    )
    worker = Worker(config, handlers, logging.getLogger("worker"))
    signal.signal(signal.SIGTERM, lambda *_: worker.stop("SIGTERM"))
    worker.start()
    print(f"started {worker.worker_id}", flush=True)  # noqa: T201
    while not worker.wait(0.5):
        pass
