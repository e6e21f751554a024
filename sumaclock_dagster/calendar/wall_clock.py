"""One moment that somebody reads off a wall clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sumaclock_dagster.calendar.occurrences import next_occurrence
from sumaclock_dagster.calendar.schedule import parse_schedule
from sumaclock_dagster.model import SumaclockError

# No zone is further from UTC.
FARTHEST = timedelta(days=1, hours=2)


def instant_at(wall: datetime, timezone: str) -> datetime:
    """The moment (aware, in UTC) at which the clocks of `timezone` show the naive `wall`, by the rules for crons: the
    first of two, and the first minute after a gap for a time that is skipped.

    Raises SumaclockError for an unknown zone, and for a time with seconds or outside the years 2 to 9998.
    """
    if wall.second or wall.microsecond or not 2 <= wall.year <= 9998:
        raise SumaclockError(
            f"'{wall.isoformat(' ')}' is no minute that the clock can fire at; write for example '2026-12-01 09:00'."
        )
    once_a_year = parse_schedule(f"{wall.minute} {wall.hour} {wall.day} {wall.month} *", timezone=timezone)
    found = next_occurrence(once_a_year, wall.replace(tzinfo=UTC) - FARTHEST)
    if found is None or abs(found.replace(tzinfo=None) - wall) > 2 * FARTHEST:
        raise SumaclockError(f"The clocks of {timezone} do not show {wall:%Y-%m-%d %H:%M} or a time after it.")
    return found
