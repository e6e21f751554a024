"""The calendar's rules a second time: every UTC minute of a window is walked and asked whether a cron fires in it.

Shares no code with the calendar: it reads crons by itself, and knows of zones only what time it is in each minute.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

DAY_MINUTES = 1440
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


@cache
def zone(name: str) -> ZoneInfo:
    with (files("tzdata") / "zoneinfo" / name).open("rb") as data:
        return ZoneInfo.from_file(data)


def minute_number(moment: datetime) -> int:
    """Whole minutes from 1970 in UTC, rounded down."""
    return (moment - EPOCH) // timedelta(minutes=1)


class Window:
    """All minutes from `start` on for `days` days: `wall[i]` is what the wall clock shows in the i-th.

    In minutes from 1970, as `first` is, the number of its first minute. No clock change lies right before `start`.
    """

    def __init__(self, zone_name: str, start: datetime, days: int) -> None:
        self.zone_name = zone_name
        self.first = minute_number(start)
        self.minutes = days * DAY_MINUTES
        shown = zone(zone_name)
        seconds = range(self.first * 60, (self.first + self.minutes) * 60, 60)
        offsets = [datetime.fromtimestamp(second, shown).utcoffset() for second in seconds]
        self.wall = np.arange(self.first, self.first + self.minutes) + np.array(
            [offset // timedelta(minutes=1) for offset in offsets if offset is not None]
        )
        self.first_day = int(self.wall.min()) // DAY_MINUTES
        dates = np.arange(self.first_day, int(self.wall.max()) // DAY_MINUTES + 1).astype("M8[D]")
        months = dates.astype("M8[M]")
        self.month = months.astype(int) % 12 + 1
        self.day = (dates - months).astype(int) + 1
        self.last_day = ((months + 1).astype("M8[D]") - months.astype("M8[D]")).astype(int)
        # The first day of 1970 was a Thursday.
        self.weekday = (dates.astype(int) + 4) % 7

    @property
    def end(self) -> datetime:
        return EPOCH + timedelta(minutes=self.first + self.minutes)

    def firing(self, cron: str) -> NDArray[np.bool_]:
        """For each minute of the window whether the cron fires in it."""
        minute, hour, *days = cron.upper().split()
        of_the_day = np.array([_holds(hour, h) and _holds(minute, m) for h in range(24) for m in range(60)])
        written = np.outer(self._days(*days), of_the_day).ravel()
        shown = self.wall - self.first_day * DAY_MINUTES
        if minute[0] == "*" or hour[0] == "*":
            return written[shown]
        # A minute answers for all that the wall clock shows or passes over for the first time in it.
        seen = np.concatenate(([shown[0] - 1], np.maximum.accumulate(shown)[:-1]))
        total = np.concatenate(([0], np.cumsum(written)))
        return total[np.maximum(shown, seen) + 1] - total[seen + 1] > 0

    def next_firing(self, firing: NDArray[np.bool_], after: datetime) -> datetime | None:
        start = minute_number(after) + 1 - self.first
        found = np.flatnonzero(firing[start:])
        return EPOCH + timedelta(minutes=self.first + start + int(found[0])) if found.size else None

    def _days(self, day: str, month: str, weekday: str) -> NDArray[np.bool_]:
        dates = self._any(day, self._date_term)
        weekdays = self._any(weekday, self._weekday_term)
        months = np.array([_holds(month, value, 1) for value in self.month])
        both = day[0] == "*" or weekday[0] == "*"
        return months & (dates & weekdays if both else dates | weekdays)

    def _any(self, text: str, term_days: Callable[[str], NDArray[np.bool_]]) -> NDArray[np.bool_]:
        return np.any([term_days(term) for term in text.split(",")], axis=0)

    def _date_term(self, term: str) -> NDArray[np.bool_]:
        if term == "L":
            return self.day == self.last_day
        if term == "LW":
            on_weekday = (self.weekday > 0) & (self.weekday < 6)
            friday_before_weekend = (self.weekday == 5) & (self.day >= self.last_day - 2)
            return on_weekday & ((self.day == self.last_day) | friday_before_weekend)
        return np.array([_holds_term(term, value, 1) for value in self.day])

    def _weekday_term(self, term: str) -> NDArray[np.bool_]:
        if term.endswith("L"):
            return (self.weekday == int(term[:-1]) % 7) & (self.day > self.last_day - 7)
        if "#" in term:
            name, nth = term.split("#")
            return (self.weekday == _number(name) % 7) & ((self.day + 6) // 7 == int(nth))
        return np.array([_holds_term(term, value) or (value == 0 and _holds_term(term, 7)) for value in self.weekday])


def _holds(text: str, value: int, least: int = 0) -> bool:
    return any(_holds_term(term, value, least) for term in text.split(","))


def _holds_term(term: str, value: int, least: int = 0) -> bool:
    """`least` is the field's least value, from which `*/n` counts."""
    span, _, step = term.partition("/")
    if span == "*":
        return (value - least) % int(step or 1) == 0
    first, _, last = span.partition("-")
    low = _number(first)
    high = _number(last) if last else low
    return low <= value <= high and (value - low) % int(step or 1) == 0


def _number(text: str) -> int:
    if text.isdigit():
        return int(text)
    return WEEKDAYS.index(text) if text in WEEKDAYS else MONTHS.index(text) + 1
