"""The module of a worker (tests/serving.py) whose executions can be counted."""

from __future__ import annotations

import os
import threading

import psycopg

from sumaclock_dagster.handlers import HandlerRun, Handlers
from tests.serving import serve


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


if __name__ == "__main__":
    serve(lambda url, settings: effect_handlers(url))
