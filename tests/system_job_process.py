"""The module of a worker (tests/serving.py) with one system job.

Beside settings it takes name, every_seconds and takes_seconds of the job, and kills: whether the job kills its process.
Each execution inserts one row into public.periods.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import psycopg

from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.system_jobs import SystemRun
from tests.serving import serve

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


def main() -> None:
    def make_handlers(url: str, settings: dict[str, Any]) -> Handlers:
        job = {key: settings.pop(key) for key in ("name", "every_seconds", "takes_seconds", "kills") if key in settings}
        return noting_job(url, **job)

    serve(make_handlers)


if __name__ == "__main__":
    main()
