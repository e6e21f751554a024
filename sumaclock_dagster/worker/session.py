"""A worker's connections: each made anew when it breaks, with growing pauses, until the worker gives up."""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from time import monotonic
from typing import TypeVar

import psycopg

from sumaclock_dagster.db import Connection, connect, query

T = TypeVar("T")

PAUSE_FIRST_SECONDS = 0.1
PAUSE_MOST_SECONDS = 2.0
# Connection lost, rolled back by the server, out of resources, object in use, operator intervention: all pass.
PASSING_CLASSES = {"08", "40", "53", "55", "57"}
READ_ONLY_TRANSACTION = "25006"


class GivenUp(Exception):
    """The worker's time ended while the database was away."""


def passes(error: psycopg.Error, conn: Connection | None) -> bool:
    """Whether the same call can succeed later on a new connection."""
    if conn is None or conn.closed or conn.broken:
        return True
    state = error.sqlstate or ""
    return state[:2] in PASSING_CLASSES or state == READ_ONLY_TRANSACTION


class Session:
    """One connection and how to make it. `opened` prepares a new one; what it raises counts as not connected."""

    def __init__(
        self,
        url: str,
        name: str,
        log: logging.Logger,
        opened: Callable[[Connection], None] | None = None,
    ) -> None:
        self._url = url
        self._name = name
        self._log = log
        self._opened = opened
        self._conn: Connection | None = None
        self._pause = Event()

    def call(self, action: Callable[[Connection], T], give_up: Callable[[], bool]) -> T:
        """Do `action`, again on a new connection after each passing error. Raises GivenUp when `give_up` says so, and
        psycopg.Error for an error that would come again."""
        pause = PAUSE_FIRST_SECONDS
        while True:
            try:
                return action(self.connection())
            except psycopg.Error as error:
                if not passes(error, self._conn):
                    raise
                self.close()
                if give_up():
                    raise GivenUp from error
                self._log.warning("%s: %s; trying again in %.1f s", self._name, _first_line(error), pause)
            self._pause.wait(pause)
            pause = min(2 * pause, PAUSE_MOST_SECONDS)

    def connection(self) -> Connection:
        """The connection, made when there is none. Raises psycopg.OperationalError."""
        if self._conn is None:
            conn = connect(self._url, self._name)
            try:
                conn.execute(query("plan_by_index"))
                if self._opened is not None:
                    self._opened(conn)
            except BaseException:
                conn.close()
                raise
            self._conn = conn
        return self._conn

    def close(self) -> None:
        if self._conn is not None:
            with suppress(psycopg.Error):
                self._conn.close()
            self._conn = None


class Wake:
    """Wakes a thread that waits for a connection's notifications, or for this."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)

    def set(self) -> None:
        with suppress(BlockingIOError, OSError):
            self._write.send(b"x")

    def wait(self, conn: Connection, notified: Event, timeout_seconds: float) -> None:
        """Return on a notification, a `set`, or after the time. Raises psycopg.OperationalError on a lost connection.

        Notifications that came with an earlier answer are already inside libpq, where no poll sees them: they are
        taken first.
        """
        _take_notifications(conn)
        if notified.is_set():
            return
        deadline = monotonic() + timeout_seconds
        poll = select.poll()
        poll.register(conn.fileno(), select.POLLIN)
        poll.register(self._read.fileno(), select.POLLIN)
        while not notified.is_set():
            ready = poll.poll(max(0.0, deadline - monotonic()) * 1000)
            if not ready:
                return
            for fd, _ in ready:
                if fd == self._read.fileno():
                    self._drain()
                    return
                conn.pgconn.consume_input()
                _take_notifications(conn)

    def close(self) -> None:
        self._read.close()
        self._write.close()

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while self._read.recv(4096):
                pass


def _take_notifications(conn: Connection) -> None:
    while (notification := conn.pgconn.notifies()) is not None:
        if conn.pgconn.notify_handler is not None:
            conn.pgconn.notify_handler(notification)


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
