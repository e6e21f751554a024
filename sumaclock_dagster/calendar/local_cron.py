"""Local crons as cronsim reads them, and their matches on a wall clock that knows no zone."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from datetime import MAXYEAR, datetime
from functools import lru_cache

from cronsim import CronSim, CronSimError

from sumaclock_dagster.calendar.grammar import refusal, split_fields
from sumaclock_dagster.raw_schedule import DAY

# Whatever a cron can match comes up within 40 years, where a century skips its leap day.
SEARCH_YEARS = 50
LAST_YEAR = MAXYEAR - 2 * SEARCH_YEARS - 2
SOME_START = datetime(2000, 1, 1)


@dataclass(frozen=True, slots=True)
class LocalCron:
    """A cron that was read.

    text: five fields separated by one space.
    fields: cronsim's reading of them, shared by everybody, so never advanced.
    last_of_day: hour and minute of its last match on a day that has any.
    real_intervals: minute or hour begins with `*`, so it goes with real time through a clock change.
    """

    text: str
    fields: CronSim
    last_of_day: tuple[int, int]
    real_intervals: bool

    def matches(self, after: datetime) -> Iterator[datetime]:
        """Naive wall-clock minutes strictly after the naive `after`, those of the next 50 years.

        `after` may lie in the year LAST_YEAR at the latest: the walk looks that far ahead at each step.
        """
        walk = copy(self.fields)
        # cronsim's first step is one second: it leads straight into the next minute, or into the next day where this
        # one has no more; cronsim would go there hour by hour.
        day_is_over = (after.hour, after.minute) >= self.last_of_day
        end = after.replace(second=59, microsecond=0)
        walk.dt = end.replace(hour=23, minute=59) if day_is_over else end
        last_year = after.year + SEARCH_YEARS
        for match in walk:
            if match.year > last_year:
                return
            yield match


@lru_cache(maxsize=2048)
def read_cron(cron: str) -> LocalCron:
    """Raises SumaclockError that names the field, the reason and a valid example."""
    texts = split_fields(cron)
    text = " ".join(texts)
    together = f"no day is ever that with month {texts[3]!r} and day of week {texts[4]!r}"
    never = refusal(cron, DAY, texts[2], f"{together}, so it would never fire", "28")
    try:
        fields = CronSim(text, SOME_START)
    except CronSimError:
        raise never from None
    last_of_day = (max(fields.hours), max(fields.minutes))
    read = LocalCron(text, fields, last_of_day, texts[0].startswith("*") or texts[1].startswith("*"))
    if next(read.matches(SOME_START), None) is None:
        raise never
    return read
