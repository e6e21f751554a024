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
    real_intervals: minute or hour begins with `*`, so it goes with real time through a clock change.
    """

    text: str
    fields: CronSim
    real_intervals: bool

    def matches(self, after: datetime) -> Iterator[datetime]:
        """Naive wall-clock minutes strictly after the naive `after`, those of the next 50 years.

        `after` may lie in the year LAST_YEAR at the latest: the walk looks that far ahead at each step.
        """
        walk = copy(self.fields)
        # cronsim's first step is one second: from here it leads straight into the next minute.
        walk.dt = after.replace(second=59, microsecond=0)
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
    read = LocalCron(text, fields, texts[0].startswith("*") or texts[1].startswith("*"))
    if next(read.matches(SOME_START), None) is None:
        raise never
    return read
