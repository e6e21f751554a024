"""What a person asked for: a local cron with its zone, or one instant. Checked before anything is stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sumaclock_dagster.calendar.local_cron import read_cron
from sumaclock_dagster.calendar.zones import zone_named
from sumaclock_dagster.model import SumaclockError

DEFAULT_TIMEZONE = "Europe/Madrid"
INSTANT_EXAMPLE = "'2026-12-01T09:00:00+01:00'"


@dataclass(frozen=True, slots=True)
class LocalSchedule:
    """A cron in local time, or one instant; exactly one of the two is set. Made by `parse_schedule`.

    cron: five fields separated by one space, on the wall clock of `timezone`.
    instant: aware, in UTC, on a whole minute.
    timezone: IANA name; for an instant it only says how people see it.
    """

    cron: str | None = None
    instant: datetime | None = None
    timezone: str = DEFAULT_TIMEZONE


def parse_schedule(
    cron: str | None = None, instant: datetime | None = None, timezone: str = DEFAULT_TIMEZONE
) -> LocalSchedule:
    """The schedule of a cron or of an aware instant, which may lie in the past.

    Raises SumaclockError that names the field, the reason and a valid example.
    """
    zone_named(timezone)
    if (cron is None) == (instant is None):
        given = "neither was" if cron is None else "both were"
        raise SumaclockError(
            f"A schedule takes either cron or instant and {given} given; write for example cron '0 9 * * MON' "
            f"or instant {INSTANT_EXAMPLE}."
        )
    if instant is not None:
        return LocalSchedule(instant=_checked_instant(instant), timezone=timezone)
    return LocalSchedule(cron=read_cron(cron or "").text, timezone=timezone)


def _checked_instant(instant: datetime) -> datetime:
    if instant.tzinfo is None or instant.utcoffset() is None:
        raise _refusal(instant, "it has no UTC offset, so it may mean several moments")
    try:
        in_utc = instant.astimezone(UTC)
    except OverflowError:
        raise _refusal(instant, "in UTC it is beyond the years that can be stored") from None
    if in_utc.second or in_utc.microsecond:
        raise _refusal(instant, "it is not on a whole minute, and the clock fires on whole minutes")
    return in_utc


def _refusal(instant: datetime, reason: str) -> SumaclockError:
    return SumaclockError(f"instant '{instant.isoformat()}': {reason}; write for example {INSTANT_EXAMPLE}.")
