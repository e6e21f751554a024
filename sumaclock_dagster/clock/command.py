"""The one command that clock jobs run (rule 1: the clock does one thing)."""

from __future__ import annotations

from uuid import UUID

from sumaclock_dagster.db import query


def firing_command(job_id: UUID) -> str:
    """The SQL that pg_cron runs at the job's time: write one run and wake the workers.

    Raises TypeError for anything but a plain UUID, before any SQL exists.
    """
    if type(job_id) is not UUID:
        raise TypeError(f"A firing takes a UUID and nothing else, not {type(job_id).__name__}.")
    return query("fire_from_clock").decode().strip().replace("{job_id}", str(job_id))
