"""Workers that settle tasks, in processes of their own.

`python -m tests.task_process serve SETTINGS`: one worker. It prints "started <worker id>" and ends on SIGTERM.

`python -m tests.task_process crash SETTINGS`: for each number n on standard input, a fresh process starts a worker that
executes one run and kills itself by SIGKILL after its n-th exchange with PostgreSQL on behalf of that run: each
statement, BEGIN, SAVEPOINT and COMMIT, to the app database and to pg_cron's, is one. It prints "killed", or "ended"
where the run took no more than n exchanges.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import psycopg

from sumaclock_dagster.settings import Settings
from sumaclock_dagster.tasks.handler import AI_TASK, task_handlers
from sumaclock_dagster.worker import Worker, WorkerConfig
from tests.conftest import AppDatabase
from tests.tasks import effect_kinds
from tests.waiting import until

COUNTED = ("sumaclock tasks", "sumaclock clock")


def spawn(mode: str, app_db: AppDatabase, **settings: Any) -> subprocess.Popen[str]:
    urls = {"database_url": app_db.app_url, "cron_database_url": app_db.cron_url}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.task_process", mode, json.dumps(urls | settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def serving(process: subprocess.Popen[str]) -> None:
    """Wait until the worker of a process in mode `serve` lives."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("started "), f"the worker process said {line!r}"


def crashes(process: subprocess.Popen[str], after: int) -> bool:
    """Let a process in mode `crash` execute the one run that is pending. True when it was killed on the way."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{after}\n")
    process.stdin.flush()
    said = process.stdout.readline().strip()
    assert said in ("killed", "ended"), f"the crashing process said {said!r}"
    return said == "killed"


def make_worker(settings: Settings) -> Worker:
    config = WorkerConfig.from_settings(settings, worker_id=None, dagster_run_id=None, code_version="test")
    return Worker(config, task_handlers(settings, effect_kinds()), logging.getLogger("worker"))


def serve(settings: Settings) -> None:
    worker = make_worker(settings)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop("SIGTERM"))
    worker.start()
    say(f"started {worker.worker_id}")
    while not worker.wait(0.5):
        pass


def crash(settings: Settings) -> None:
    for line in sys.stdin:
        # A fork of a process that has neither threads nor connections.
        child = os.fork()
        if child == 0:
            execute_one(settings, int(line))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            say("killed")
        else:
            say("ended" if status == 0 else f"failed with status {status}")


def execute_one(settings: Settings, kill_after: int) -> None:
    psycopg.Connection.wait = dying(psycopg.Connection.wait, kill_after)  # type: ignore[method-assign]
    worker = make_worker(settings)
    worker.start()
    until(lambda: is_settled(worker), 20, "the one run to be executed")
    worker.stop("its run is over")
    assert worker.wait(20)


def is_settled(worker: Worker) -> bool:
    """Runs that deliver to core-api may come besides; they have no handler here."""
    report = worker.take_report()
    return report is not None and any(kind == AI_TASK for kind, _ in report.counts)


def dying(original: Callable[..., Any], kill_after: int) -> Callable[..., Any]:
    lock = threading.Lock()
    count = 0

    def wait(self: psycopg.Connection[Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal count
        if self.info.parameter_status("application_name") not in COUNTED:
            return original(self, *args, **kwargs)
        with lock:
            if count == kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(self, *args, **kwargs)
            count += 1
            if count == kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

    return wait


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


def main() -> None:
    mode, values = sys.argv[1], json.loads(sys.argv[2])
    logging.basicConfig(level=logging.WARNING)
    settings = Settings(**{name: values.pop(name) for name in ("database_url", "cron_database_url")})
    {"serve": serve, "crash": crash}[mode](settings.model_copy(update=values))


if __name__ == "__main__":
    main()
