"""Run-time-defined schedules on PostgreSQL: pg_cron is the clock, Dagster the executor and the window.

For your own Dagster definitions: `from sumaclock_dagster import with_sumaclock`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sumaclock_dagster.definitions import with_sumaclock

__all__ = ["with_sumaclock"]


def __getattr__(name: str) -> Any:
    """Imported when asked for: who uses only the core imports no Dagster."""
    if name == "with_sumaclock":
        from sumaclock_dagster.definitions import with_sumaclock

        return with_sumaclock
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
