"""Slots: all jobs of one schedule share one clock job, whose firing writes a run for each of them.

`clock_slots` says which slots are in place in pg_cron, so that a job whose slot is there sends nothing to pg_cron.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar
from uuid import UUID, uuid5

import psycopg

from sumaclock_dagster.clock.reach import connect_or_refuse
from sumaclock_dagster.clock.refusals import job_refusals
from sumaclock_dagster.db import Connection, query, with_database
from sumaclock_dagster.model import SumaclockError

T = TypeVar("T")
SLOT_PREFIX = ":slot:"
NAMESPACE = UUID("5b0e0c0b-7f0d-5a53-9d55-2d8f0c1d6a3e")


def slot_id(schedule: str) -> UUID:
    """The slot of a raw schedule. Two ways to write the same minutes are two slots."""
    return uuid5(NAMESPACE, schedule)


def count_jobs(app: Connection) -> dict[UUID, int]:
    """How many jobs fire by each slot that is in place."""
    return dict(app.execute(query("count_jobs_by_slot")).fetchall())


class SlotNotes:
    """`clock_slots`, over a connection of its own: a note is committed at once, whatever transaction its maker is in,
    and nobody waits for another's. Opened on first use, and again after a break. Raises SumaclockError."""

    def __init__(self, cron_url: str, database_name: str) -> None:
        self._cron_url = cron_url
        self._database_name = database_name
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def noted(self, slots: Collection[UUID]) -> set[UUID]:
        """Those of these slots that are in place."""
        values = {"ids": list(slots)}
        return self._call(lambda conn: {row[0] for row in conn.execute(query("list_slots"), values)})

    def note(self, slots: Mapping[UUID, str]) -> None:
        """These are in place: schedules by slot."""
        values = {"ids": list(slots), "schedules": list(slots.values())}
        self._call(lambda conn: conn.execute(query("note_slots"), values))

    def forget(self, slots: Collection[UUID]) -> None:
        """These are about to be taken away."""
        values = {"ids": list(slots)}
        self._call(lambda conn: conn.execute(query("forget_slots"), values))

    def _call(self, work: Callable[[Connection], T]) -> T:
        with self._lock, job_refusals():
            for attempt in (1, 2):
                connection = self._open()
                try:
                    return work(connection)
                except psycopg.OperationalError as error:
                    if attempt == 2 or not connection.closed:
                        said = error.diag.message_primary or type(error).__name__
                        raise SumaclockError(f"The app database did not answer ({said}). Try again.") from None
        raise AssertionError("the last attempt returns or raises")

    def _open(self) -> Connection:
        if self._connection is None or self._connection.closed:
            url = with_database(self._cron_url, self._database_name)
            connection = connect_or_refuse(url, "sumaclock slots", "SUMACLOCK_CRON_DATABASE_URL")
            connection.execute(query("limit_clock_session"))
            self._connection = connection
        return self._connection
