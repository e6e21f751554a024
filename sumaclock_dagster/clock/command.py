"""The fixed commands that clock jobs run (rule 1: the clock does one thing)."""

from __future__ import annotations

from functools import cache, lru_cache
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
    return _filled("fire_from_clock_with_care" if careful else "fire_from_clock", "{job_id}", job_id)


def slot_firing_command(slot: UUID) -> str:
    """The SQL that pg_cron runs at the time of a slot: write one run for each of its jobs that joined it before this
    minute, with the care that `firing_command` takes where the job's row asks for it, and wake the workers.

    A job that somebody is deleting is left out, or it would end the statement for all others. Raises TypeError.
    """
    return _filled("fire_slot_from_clock", "{slot_id}", slot)


def skips(schedule: str, overlap: str) -> bool:
    """Whether a job's firing writes no run while one of its last is pending or running."""
    return overlap == "skip" or (overlap == "auto" and SECONDS.fullmatch(schedule) is not None)


@lru_cache
def is_careful(schedule: str, overlap: str) -> bool:
    """Whether a job (no task's) needs the careful command. All others keep the plain one, which asks nothing."""
    return overlap == "skip" or SECONDS.fullmatch(schedule) is not None


def _filled(name: str, place: str, value: UUID) -> str:
    if type(value) is not UUID:
        raise TypeError(f"A firing takes a UUID and nothing else, not {type(value).__name__}.")
    return _text(name).replace(place, str(value))


@cache
def _text(name: str) -> str:
    return query(name).decode().strip()
