"""Where wall-clock matches lie on the UTC line: the rules for minutes that a clock change skips or repeats.

A minute of a fixed local time that is skipped moves to the first minute after the gap; one that is repeated counts the
first time. Where minute or hour begins with `*`, every real minute that the wall clock shows counts, in both passes,
and none is made up for a gap. UTC offsets are taken to be whole minutes, which they are everywhere since 1972.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from zoneinfo import ZoneInfo

from sumaclock_dagster.calendar.local_cron import LAST_YEAR, LocalCron, read_cron
from sumaclock_dagster.calendar.schedule import LocalSchedule
from sumaclock_dagster.calendar.zones import zone_named

MINUTE = timedelta(minutes=1)
NO_OFFSET = timedelta(0)


class ClockChange(StrEnum):
    """What a clock change does to an occurrence."""

    NONE = "none"
    MOVED = "moved: the clock skips this time, so it comes right after the gap"
    FIRST_OF_TWO = "first of two: the clock shows this time twice"
    BOTH_OF_TWO = "one of two: the clock shows this time twice, and both count"
    OFFSET = "another UTC offset than the occurrence before"


class Placement(NamedTuple):
    """An occurrence (aware, in UTC) and what a clock change does to it; never OFFSET."""

    occurrence: datetime
    change: ClockChange


def next_occurrence(schedule: LocalSchedule, after: datetime) -> datetime | None:
    """The first occurrence strictly after the aware `after`, in UTC; None where there is none within 50 years.

    Raises SumaclockError for a cron or a zone that no longer resolves, ValueError for a naive `after`.
    """
    placement = next_placement(schedule, after)
    return placement and placement.occurrence


def occurrences(schedule: LocalSchedule, after: datetime) -> Iterator[datetime]:
    """All occurrences strictly after the aware `after`, in UTC, in order. Raises as `next_occurrence` does."""
    following = next_occurrence(schedule, after)
    while following:
        yield following
        following = next_occurrence(schedule, following)


def next_placement(schedule: LocalSchedule, after: datetime) -> Placement | None:
    """As `next_occurrence`, with what a clock change does to it."""
    if after.tzinfo is None:
        raise ValueError("`after` must be an aware datetime.")
    zone = zone_named(schedule.timezone)
    if schedule.cron is None:
        instant = schedule.instant
        return Placement(instant, ClockChange.NONE) if instant and instant > after else None
    cron = read_cron(schedule.cron)
    if after.year >= LAST_YEAR:
        return None
    in_utc = after.astimezone(UTC).replace(tzinfo=None)
    wall = after.astimezone(zone).replace(tzinfo=None, fold=0)
    return _next_real(cron, zone, in_utc, wall) if cron.real_intervals else _next_fixed(cron, zone, in_utc, wall)


# From here on all datetimes are naive: `wall` and `match` on the zone's wall clock, the others in UTC.


def _next_fixed(cron: LocalCron, zone: ZoneInfo, after: datetime, wall: datetime) -> Placement | None:
    for match in cron.matches(wall):
        before, behind = _offsets(zone, match)
        occurrence, change = match - before, ClockChange.NONE
        if before < behind:
            occurrence, change = _change_between(zone, match - behind, occurrence), ClockChange.MOVED
        elif before > behind:
            change = ClockChange.FIRST_OF_TWO
        if occurrence > after:
            return _placement(occurrence, change)
    return None


def _next_real(cron: LocalCron, zone: ZoneInfo, after: datetime, wall: datetime) -> Placement | None:
    before, behind = _offsets(zone, wall)
    if before > behind and wall - before == after:
        # In the first of two passes: what the wall clock shows again comes before what it has not shown yet.
        set_back = _change_between(zone, after, wall - behind)
        match = next(cron.matches(wall), None)
        if match and match - before < set_back:
            return _placement(match - before, ClockChange.BOTH_OF_TWO)
        after = set_back - MINUTE
        wall = after + behind
    for match in cron.matches(wall):
        before, behind = _offsets(zone, match)
        if before >= behind:
            occurrence = match - before if match - before > after else match - behind
            return _placement(occurrence, ClockChange.NONE if before == behind else ClockChange.BOTH_OF_TWO)
    return None


def _offsets(zone: ZoneInfo, wall: datetime) -> tuple[timedelta, timedelta]:
    """The UTC offsets in force before and after the clock change at `wall`; the same where there is none.

    The first is greater where the minute is repeated, smaller where it is skipped (PEP 495).
    """
    return zone.utcoffset(wall) or NO_OFFSET, zone.utcoffset(wall.replace(fold=1)) or NO_OFFSET


def _change_between(zone: ZoneInfo, before: datetime, behind: datetime) -> datetime:
    """The first minute with the UTC offset that is in force at `behind`, but not yet at `before`."""

    def offset(moment: datetime) -> timedelta | None:
        return zone.fromutc(moment.replace(tzinfo=zone)).utcoffset()

    start = before.replace(second=0, microsecond=0)
    final = offset(behind)
    minutes = range((behind - start) // MINUTE)
    return start + MINUTE * bisect_left(minutes, True, key=lambda minute: offset(start + MINUTE * minute) == final)


def _placement(occurrence: datetime, change: ClockChange) -> Placement:
    return Placement(occurrence.replace(tzinfo=UTC), change)
