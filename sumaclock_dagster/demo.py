"""The kind `demo`, for trying things out."""

from __future__ import annotations

from typing import Any

from sumaclock_dagster.handlers import HandlerRun, Handlers
from sumaclock_dagster.model import RetryLater


def demo_handlers() -> Handlers:
    """Kind `demo`. Its payload may hold `sleep_seconds` (number: work that long) and `fail` (text: raise it)."""
    handlers = Handlers()

    @handlers.register("demo")
    def demo(run: HandlerRun) -> Any:
        payload = run.payload if isinstance(run.payload, dict) else {}
        sleep_seconds = float(payload.get("sleep_seconds", 0))
        run.log.info("Demo run for %s, meant for %s.", run.organization_id, f"{run.scheduled_at:%Y-%m-%d %H:%M} UTC")
        if run.cancelled.wait(sleep_seconds):
            return RetryLater(1, "Cancelled while it slept.")
        if payload.get("fail"):
            raise RuntimeError(str(payload["fail"]))
        return {"hello": run.organization_id, "slept_seconds": sleep_seconds, "attempt": run.attempt}

    return handlers
