"""The resource that everything in this code location shares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg
import psycopg

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.settings import Settings

# Nothing here hands values on. With a key of its own none of it needs the IO manager of the user, which may be down.
OWN_IO_KEY = "sumaclock_io_manager"


@dataclass(frozen=True)
class Sumaclock:
    """Settings, the handlers of this process and its code version. Connects only when asked to."""

    settings: Settings
    handlers: Handlers
    code_version: str

    @contextmanager
    def connect(self, purpose: str) -> Iterator[Connection]:
        """An app connection for `purpose`, closed afterwards. Raises SumaclockError when there is no database."""
        with _open("app", self.settings.app_url, purpose) as connection:
            yield connection

    @contextmanager
    def connect_to_cron(self, purpose: str) -> Iterator[Connection]:
        """The same to pg_cron's database."""
        with _open("cron", self.settings.cron_url, purpose) as connection:
            yield connection


def location_of(context: dg.SensorEvaluationContext) -> str | None:
    """Name of the code location that the sensor is in; None where it is evaluated outside of any."""
    origin = context.code_location_origin
    return origin.location_name if origin is not None else None


def _open(which: str, url: str, purpose: str) -> Connection:
    try:
        return connect(url, f"sumaclock {purpose}")
    except psycopg.OperationalError as error:
        raise SumaclockError(
            f"The {which} database can't be reached: {' '.join(str(error).split())} "
            "Nothing is lost: runs wait in it. `sumaclock doctor` says what is wrong."
        ) from error
