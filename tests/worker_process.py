"""A worker in a process of its own, for tests that kill or pause one: `python -m tests.worker_process URL JSON`.

JSON holds settings by name, and clock_shift_seconds: how far this process's own clock is off.
It prints "started <worker id>" once it lives and ends with its worker, or on SIGTERM.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import psycopg

from sumaclock_dagster.handlers import HandlerRun, Handlers
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.worker import Worker, WorkerConfig


def effect_handlers(url: str) -> Handlers:
    """Kinds whose effect can be counted: each execution inserts one row into public.effects."""
    handlers = Handlers()
    local = threading.local()

    def note(run: HandlerRun) -> None:
        if getattr(local, "conn", None) is None or local.conn.closed:
            local.conn = psycopg.connect(url, autocommit=True)
        local.conn.execute(
            "insert into public.effects (run_id, attempt, pid) values (%s, %s, %s)", [run.id, run.attempt, os.getpid()]
        )

    @handlers.register("effect", max_attempts=20, backoff_seconds=0.1, backoff_max_seconds=0.5)
    def effect(run: HandlerRun) -> int:
        note(run)
        return run.id

    @handlers.register("slow")
    def slow(run: HandlerRun) -> str:
        note(run)
        run.cancelled.wait(run.payload.get("seconds", 60))
        return "cancelled" if run.cancelled.is_set() else "slept"

    return handlers


def start(url: str, **settings: object) -> subprocess.Popen[str]:
    """Start the process and return once its worker lives."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.worker_process", url, json.dumps(settings)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("started "), f"the worker process said {line!r}"
    return process


def main() -> None:
    url, settings = sys.argv[1], json.loads(sys.argv[2])
    shift, real = settings.pop("clock_shift_seconds", 0), time.time
    time.time = lambda: real() + shift
    logging.basicConfig(level=logging.WARNING)
    config = WorkerConfig.from_settings(
        Settings(database_url=url).model_copy(update=settings),
        worker_id=None,
        dagster_run_id=None,
        code_version="test",
    )
    worker = Worker(config, effect_handlers(url), logging.getLogger("worker"))
    signal.signal(signal.SIGTERM, lambda *_: worker.stop("SIGTERM"))
    worker.start()
    print(f"started {worker.worker_id}", flush=True)  # noqa: T201
    while not worker.wait(0.5):
        pass


if __name__ == "__main__":
    main()
