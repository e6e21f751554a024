"""System jobs: what is done once in each period, whichever worker comes first. Their list is in code."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sumaclock_dagster.model import SumaclockError

NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
LONGEST_SECONDS = 366 * 86_400


@dataclass(slots=True)
class SystemRun:
    """What a system job is given.

    period: the beginning (UTC) of the period that it is executed for, by the database's clock.
    attempt: 1, or more where a worker died with it within the same period.
    cancelled: set as soon as the worker is stopped (there is the grace time left), or is cut off from the database and
        another worker may execute the job: a long job should look at it, and raise when it ends early for it.
    log: a logger whose lines carry the job's name.
    """

    name: str
    period: datetime
    every_seconds: int
    attempt: int
    log: logging.LoggerAdapter[logging.Logger]
    cancelled: threading.Event = field(default_factory=threading.Event)


SystemFunction = Callable[[SystemRun], Any]


@dataclass(frozen=True, slots=True)
class SystemJob:
    """Periods begin at multiples of `every_seconds` since 1970 UTC: whole minutes, hours and days by UTC."""

    name: str
    function: SystemFunction
    every_seconds: int


def checked(job: SystemJob) -> SystemJob:
    """The job. Raises SumaclockError for a name that is no plain name and a period out of bounds."""
    if not NAME.fullmatch(job.name):
        raise SumaclockError(
            f"System job {job.name!r}: the name must be 1 to 100 letters, digits or _ . : - (for example 'purge')."
        )
    if type(job.every_seconds) is not int or not 1 <= job.every_seconds <= LONGEST_SECONDS:
        raise SumaclockError(
            f"System job '{job.name}': every_seconds must be a whole number from 1 to {LONGEST_SECONDS}, "
            f"not {job.every_seconds!r}."
        )
    return job
