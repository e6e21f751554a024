"""Is a session really ours, or does a pooler deal out PostgreSQL's backends per transaction?

A worker needs a session of its own: LISTEN and advisory locks belong to the backend, and in transaction or statement
pooling the next statement may reach another one. No pooler says what it does, so it is found out by behaviour.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import psycopg

from sumaclock_dagster.db import Connection, connect, query
from sumaclock_dagster.doctor.asking import value
from sumaclock_dagster.doctor.context import Context
from sumaclock_dagster.doctor.findings import Finding
from sumaclock_dagster.doctor.phrases import address
from sumaclock_dagster.doctor.reach import APP_VARIABLE, APPLICATION, CRON_VARIABLE

# A pooler that deals at random would have to deal the same backend this often to pass for a session.
QUESTIONS = 8
HOLDERS = 3
PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Pooling:
    """What was found between us and PostgreSQL.

    pooler: something in between announced another backend than the one that answered.
    fault: why the session is not ours, as the end of a sentence; None when it is.
    full: there was no further session to be had.
    """

    pooler: bool
    fault: str | None = None
    full: bool = False


def app_sessions(context: Context) -> Finding:
    return _finding(context.settings.app_url, APP_VARIABLE)


def cron_sessions(context: Context) -> Finding:
    return _finding(context.settings.cron_url, CRON_VARIABLE)


def _finding(url: str, variable: str) -> Finding:
    pooling = probe(url)
    if pooling.fault is not None:
        return Finding(
            f"transaction pooling: {pooling.fault}",
            f"{variable} leads through a pooler in transaction or statement mode ({pooling.fault}).",
            f"Let {variable} name PostgreSQL's own host and port, not the pooler's, or set pool_mode = session there.",
        )
    if pooling.full and not pooling.pooler:
        return Finding(
            "a server without free connections",
            f"The server at {address(url)} gave no {HOLDERS + 1} connections at once.",
            "Raise max_connections (or the role's connection limit), or close connections nobody needs.",
        )
    if pooling.full:
        return Finding(
            "a session pooler that is full",
            f"The pooler at {address(url)} gave no {HOLDERS + 1} sessions at once within {PATIENCE_SECONDS:.0f} s.",
            f"Raise its pool_size above 20, or let {variable} name PostgreSQL's own host and port.",
        )
    return Finding("sessions of its own through a pooler" if pooling.pooler else "straight to PostgreSQL")


def probe(url: str, patience_seconds: float = PATIENCE_SECONDS) -> Pooling:
    """Look through `url` with a handful of sessions. Leaves nothing behind, whatever is in between.

    Raises psycopg.Error when the server breaks off for another reason."""
    with ExitStack() as stack:
        ours = stack.enter_context(_session(url, patience_seconds))
        with _time_limit(ours, patience_seconds):
            backends = [_backend(ours) for _ in range(QUESTIONS)]
        pooler = ours.info.backend_pid != backends[0]
        if len(set(backends)) > 1:
            return Pooling(pooler, "one session's statements reached several backends")
        holders: dict[int, Connection] = {}
        for _ in range(HOLDERS):
            try:
                held = _hold(stack, url, patience_seconds)
            except psycopg.errors.ProtocolViolation:
                return Pooling(pooler, "it refuses transactions")
            if held is None:
                break
            backend, holder = held
            if backend == backends[0] or backend in holders:
                return Pooling(pooler, "two open sessions were given the same backend")
            holders[backend] = holder
        # While others hold their backends in open transactions, only a session of our own still answers, and as before.
        if _ask_again(ours, patience_seconds) != backends[0]:
            return Pooling(pooler, "a session lost its backend while others were in a transaction")
        if len(holders) < HOLDERS:
            return Pooling(pooler, full=True)
        # Only now: in transaction pooling, a lock or a LISTEN would stay behind in somebody else's backend.
        if not _keeps_lock(ours, patience_seconds):
            return Pooling(pooler, "a session's advisory lock was gone with the next statement")
        if not _hears(ours, next(iter(holders.values())), patience_seconds):
            return Pooling(pooler, "a notification was not delivered")
        return Pooling(pooler)


@contextmanager
def _session(url: str, patience_seconds: float) -> Iterator[Connection]:
    connection = connect(url, APPLICATION, connect_timeout=max(2, int(patience_seconds)))
    # A prepared statement, too, would stay behind in another's backend.
    connection.prepare_threshold = None
    try:
        yield connection
    finally:
        connection.close()


def _hold(stack: ExitStack, url: str, patience_seconds: float) -> tuple[int, Connection] | None:
    """A further session that stays in an open transaction, and its backend; None when none is to be had.

    Raises ProtocolViolation in statement pooling, where there are no transactions."""
    try:
        holder = stack.enter_context(_session(url, patience_seconds))
        with _time_limit(holder, patience_seconds):
            holder.execute(query("begin"))
            return _backend(holder), holder
    except psycopg.errors.ProtocolViolation:
        raise
    except psycopg.OperationalError:
        return None


def _ask_again(ours: Connection, patience_seconds: float) -> int | None:
    try:
        with _time_limit(ours, patience_seconds):
            return _backend(ours)
    except psycopg.OperationalError:
        return None


def _keeps_lock(ours: Connection, patience_seconds: float) -> bool:
    with _time_limit(ours, patience_seconds):
        ours.execute(query("take_doctor_lock"))
        held = bool(value(ours, "has_doctor_lock"))
        ours.execute(query("give_back_doctor_lock"))
    return held


def _hears(ours: Connection, holder: Connection, patience_seconds: float) -> bool:
    with _time_limit(ours, patience_seconds):
        ours.execute(query("listen_to_doctor"))
    with _time_limit(holder, patience_seconds):
        holder.execute(query("notify_doctor"))
        holder.execute(query("commit"))
    heard = any(True for _ in ours.notifies(timeout=patience_seconds, stop_after=1))
    with _time_limit(ours, patience_seconds):
        ours.execute(query("unlisten_doctor"))
    return heard


@contextmanager
def _time_limit(connection: Connection, seconds: float) -> Iterator[None]:
    """Cut the line after `seconds`: a pooler without a free backend makes a statement wait for as long as it likes,
    and PostgreSQL's own time-outs begin only once there is one. The statement then raises OperationalError."""
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        timer = threading.Timer(seconds, partial(_cut, line))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _cut(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def _backend(connection: Connection) -> int:
    return int(value(connection, "read_backend"))
