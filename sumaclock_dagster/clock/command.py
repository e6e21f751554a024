"""The two fixed commands that clock jobs run (rule 1: the clock does one thing)."""

from __future__ import annotations

from uuid import UUID

from sumaclock_dagster.db import query
from sumaclock_dagster.raw_schedule import SECONDS


def firing_command(job_id: UUID, *, careful: bool = False) -> str:
    """The SQL that pg_cron runs at the job's time: write one run and wake the workers.

    careful: first see whether one of the job's last ten runs is pending or running, and then write none where its
    overlap is not 'allow'; of two such firings at once, the second waits for the first and sees its run. It also notes
    the second instead of the minute as the time of a schedule in seconds. All that, it asks the job's row.

    Raises TypeError for anything but a plain UUID, before any SQL exists.
    """
    if type(job_id) is not UUID:
        raise TypeError(f"A firing takes a UUID and nothing else, not {type(job_id).__name__}.")
    name = "fire_from_clock_with_care" if careful else "fire_from_clock"
    return query(name).decode().strip().replace("{job_id}", str(job_id))


def skips(schedule: str, overlap: str) -> bool:
    """Whether a job's firing writes no run while one of its last is pending or running."""
    return overlap == "skip" or (overlap == "auto" and SECONDS.fullmatch(schedule) is not None)


def is_careful(schedule: str, overlap: str) -> bool:
    """Whether a job (no task's) needs the careful command. The plain one costs thousands of firings a minute less."""
    return overlap == "skip" or SECONDS.fullmatch(schedule) is not None
