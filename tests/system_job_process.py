"""A worker with one system job in a process of its own: `python -m tests.system_job_process URL JSON`.

JSON: settings by name; name, every_seconds and takes_seconds of the job; kills: whether the job kills its process; and
clock_shift_seconds: how far this process's own clock is off. Each execution inserts one row into public.periods.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time

import psycopg

from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.system_jobs import SystemRun
from sumaclock_dagster.worker import Worker, WorkerConfig

MAKE = """
create table public.periods (
    name text, period timestamptz, attempt int, pid int, began timestamptz default clock_timestamp(), ended timestamptz
);
grant select, insert, update on public.periods to public
"""


def noting_job(url: str, name: str, every_seconds: int, takes_seconds: float = 0, kills: bool = False) -> Handlers:
    """A system job that notes each execution's beginning and end."""
    handlers = Handlers()

    @handlers.system_job(name, every_seconds=every_seconds)
    def note(run: SystemRun) -> str:
        values = {"name": run.name, "period": run.period, "attempt": run.attempt, "pid": os.getpid()}
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(
                "insert into public.periods (name, period, attempt, pid)"
                " values (%(name)s, %(period)s, %(attempt)s, %(pid)s)",
                values,
            )
            if kills:
                os.kill(os.getpid(), signal.SIGKILL)
            if run.cancelled.wait(takes_seconds):
                raise InterruptedError("told to stop")
            conn.execute(
                "update public.periods set ended = clock_timestamp()"
                " where name = %(name)s and period = %(period)s and attempt = %(attempt)s",
                values,
            )
        return "noted"

    return handlers


def start(url: str, **settings: object) -> subprocess.Popen[str]:
    """Start the process and return once its worker lives."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.system_job_process", url, json.dumps(settings)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    # One that is to kill its worker may be sooner than what its worker says.
    assert line.startswith("started ") or settings.get("kills"), f"the worker process said {line!r}"
    return process


def main() -> None:
    url, settings = sys.argv[1], json.loads(sys.argv[2])
    shift, real = settings.pop("clock_shift_seconds", 0), time.time
    time.time = lambda: real() + shift
    logging.basicConfig(level=logging.WARNING)
    job = {key: settings.pop(key) for key in ("name", "every_seconds", "takes_seconds", "kills") if key in settings}
    config = WorkerConfig.from_settings(
        Settings(database_url=url).model_copy(update=settings), worker_id=None, dagster_run_id=None, code_version="test"
    )
    worker = Worker(config, noting_job(url, **job), logging.getLogger("worker"))
    signal.signal(signal.SIGTERM, lambda *_: worker.stop("SIGTERM"))
    worker.start()
    print(f"started {worker.worker_id}", flush=True)  # noqa: T201
    while not worker.wait(0.5):
        pass


if __name__ == "__main__":
    main()
