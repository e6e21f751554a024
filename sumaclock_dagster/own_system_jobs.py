"""The system jobs that come with sumaclock."""

from __future__ import annotations

from collections.abc import Iterable

from sumaclock_dagster.db import connect
from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.prune import (
    prune_core_api_jobs,
    prune_failed_commands,
    prune_launches,
    prune_runs,
    prune_system_job_runs,
    prune_workers,
)
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.system_jobs import SystemRun

PRUNE = "prune"


def own_system_jobs(settings: Settings) -> Handlers:
    """A new registry. Connects to nothing."""
    handlers = Handlers()

    @handlers.system_job(PRUNE, every_seconds=86_400)
    def prune(run: SystemRun) -> dict[str, int]:
        """Daily, in small batches, so that it may be stopped between two."""
        days = settings.retention_days
        with connect(settings.app_url, "sumaclock prune") as app:
            return {
                "runs": _until_told(run, prune_runs(app, days)),
                "core_api_jobs": _until_told(run, prune_core_api_jobs(app, days)),
                "failed_commands": _until_told(run, prune_failed_commands(app, days)),
                "workers": _until_told(run, prune_workers(app, days)),
                "launches": _until_told(run, prune_launches(app, days)),
                "system_job_runs": _until_told(run, prune_system_job_runs(app, days)),
            }

    return handlers


def _until_told(run: SystemRun, batches: Iterable[int]) -> int:
    deleted = 0
    for batch in batches:
        deleted += batch
        if run.cancelled.is_set():
            raise InterruptedError(f"Told to stop after {deleted} rows; the next run goes on from there.")
    return deleted
