"""The line to core-api as the database keeps it: who sends, what to send next, and how it went.

Whoever calls these holds one transaction around them, which begins with `take`: its lock puts all senders in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sumaclock_dagster.db import Connection, query

# A sender looks several times a second; one that was not seen for this long has ended without a word, or stands still.
UNSEEN_SECONDS = 10.0
FAILURES_TO_CLOSE = 3
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
# What core-api asks for is honoured up to here for all, and up to a day for the one job that was told so.
PAUSE_FOR_ALL_MAX_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Line:
    """room: attempts that may begin now. probing: core-api was away, and one attempt is to find out whether it is back.
    room_in_seconds: when the first attempt that is under way, in whatever worker, is given up as lost; None for none.
    """

    room: int
    probing: bool
    room_in_seconds: float | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt. Only it may write its outcome, for it is named by id and attempt (rule 4).

    body: JSON text. age_seconds: since the job was written. now: epoch seconds of the database's clock at the claim.
    """

    id: int
    attempt: int
    idempotency_key: str
    method: str
    path: str
    body: str | None
    age_seconds: float
    now: float


def take(conn: Connection, sender: UUID) -> bool:
    """Lock the line. True when `sender` is the one that sends; False when another is at work."""
    row = conn.execute(query("lock_core_api_line"), {"sender": sender, "unseen": UNSEEN_SECONDS}).fetchone()
    return bool(row and row[0])


def read(conn: Connection, concurrency: int) -> Line:
    row = conn.execute(query("read_core_api_line"), {"concurrency": concurrency}).fetchall()[0]
    return Line(*row)


def release(conn: Connection, sender: UUID) -> None:
    conn.execute(query("release_core_api_line"), {"sender": sender})


def claim(conn: Connection, line: Line, room: int, lease_seconds: float) -> list[Delivery]:
    """Begin up to `room` attempts that are due, and those whose worker was lost. Each is lost, too, when its outcome is
    not written within `lease_seconds`."""
    name = "claim_core_api_probe" if line.probing else "claim_core_api_jobs"
    rows = conn.execute(query(name), {"room": room, "lease": lease_seconds}).fetchall()
    return sorted((Delivery(*row) for row in rows), key=lambda delivery: delivery.id)


def record(
    conn: Connection,
    delivery: Delivery,
    *,
    status: str,
    http_status: int | None,
    error: str | None,
    response: str | None,
    delay_seconds: float = 0.0,
) -> bool:
    """Write an attempt's outcome: done, failed, or pending again after `delay_seconds`. False when the attempt was
    taken for lost and another one has begun."""
    values = {
        "id": delivery.id,
        "attempt": delivery.attempt,
        "status": status,
        "http_status": http_status,
        "error": error,
        "response": response,
        "delay": delay_seconds,
    }
    return conn.execute(query("record_core_api_attempt"), values).fetchone() is not None


def note_success(conn: Connection) -> None:
    """Core-api answers: the line is open, and one more attempt may be under way at once."""
    conn.execute(query("note_core_api_success"))


def note_failure(conn: Connection, *, counts: bool, at_once: bool, retry_after_seconds: float) -> None:
    """An attempt failed. counts: it speaks for core-api's state, not only for its own job's. at_once: core-api says
    itself that it is away, so that no second and third opinion is needed to close the line."""
    values = {
        "counts": counts,
        "failures_to_close": 1 if at_once else FAILURES_TO_CLOSE,
        "retry_after": min(retry_after_seconds, PAUSE_FOR_ALL_MAX_SECONDS),
        "first_pause": FIRST_PAUSE_SECONDS,
        "longest_pause": LONGEST_PAUSE_SECONDS,
    }
    conn.execute(query("note_core_api_failure"), values)


def leave_next_run(conn: Connection, not_before_seconds: float) -> bool:
    """See to it that a delivery run comes when the next attempt is due, but not before that many seconds. False when
    every core-api job has ended."""
    return conn.execute(query("leave_delivery_run"), {"not_before": not_before_seconds}).fetchone() is not None
