"""A worker that delivers core-api jobs, in a process of its own to be killed: `python -m tests.delivery_process URL
CORE_API_URL`. It prints "started <worker id>" once it lives and ends with its worker."""

from __future__ import annotations

import logging
import subprocess
import sys

from sumaclock_dagster.outbox.handler import delivery_handlers
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.worker import Worker, WorkerConfig
from tests.outbox import SETTINGS, hurry
from tests.workers import FAST


def start(url: str, core_api_url: str) -> subprocess.Popen[str]:
    """Start the process and return at once."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.delivery_process", url, core_api_url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def await_started(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("started "), f"the worker process said {line!r}"


def main() -> None:
    url, core_api_url = sys.argv[1:]
    hurry()
    settings = Settings(database_url=url).model_copy(update={**FAST, **SETTINGS, "core_api_url": core_api_url})
    config = WorkerConfig.from_settings(settings, worker_id=None, dagster_run_id=None, code_version="test")
    worker = Worker(config, delivery_handlers(settings), logging.getLogger("worker"))
    worker.start()
    print(f"started {worker.worker_id}", flush=True)  # noqa: T201
    while not worker.wait(0.5):
        pass


if __name__ == "__main__":
    main()
