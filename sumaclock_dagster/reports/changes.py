"""Whether the report of failed runs is worth making again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.reports.failures import kinds_without_handler

AGAIN_AFTER_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Seen:
    """failed: runs of the last hours. newest: when the newest failed. missing: kinds without handler. seen_at: seconds
    since the epoch, by the database's clock."""

    failed: int
    newest: str
    missing: tuple[str, ...]
    seen_at: float


def see(conn: Connection, kinds: Iterable[str], hours: int = 24) -> Seen:
    """What a report made now would be about; `kinds` have a handler."""
    row = conn.execute(query("sum_up_failures"), {"hours": hours}).fetchone()
    failed, newest, seen_at = row or (0, "", 0.0)
    return Seen(failed, newest, tuple(kinds_without_handler(conn, kinds, hours)["kind"]), seen_at)


def worth_reporting(now: Seen, reported: Seen | None) -> bool:
    """At once when the first run fails, the last failure is over, or a kind lost or got its handler. While runs keep
    failing, once in half an hour."""
    if reported is None or now.missing != reported.missing or (now.failed == 0) != (reported.failed == 0):
        return True
    changed = (now.failed, now.newest) != (reported.failed, reported.newest)
    return changed and now.seen_at - reported.seen_at >= AGAIN_AFTER_SECONDS
