"""One instant as a raw schedule for pg_cron."""

from __future__ import annotations

from datetime import UTC, datetime


def pg_cron_for(instant: datetime) -> str:
    """'M H D Mo *' in UTC for an aware instant on a whole minute.

    It has no year: it matches again each year (29 February each leap year), so what it fires must look at the time.
    Raises ValueError for a naive instant or one that is not on a whole minute.
    """
    if instant.tzinfo is None:
        raise ValueError("`instant` must be an aware datetime.")
    in_utc = instant.astimezone(UTC)
    if in_utc.second or in_utc.microsecond:
        raise ValueError("`instant` must be on a whole minute.")
    return f"{in_utc.minute} {in_utc.hour} {in_utc.day} {in_utc.month} *"
