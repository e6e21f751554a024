"""What a schedule is going to do, as people look at it before they save it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import islice
from zoneinfo import ZoneInfo

from sumaclock_dagster.calendar.occurrences import ClockChange, next_placement
from sumaclock_dagster.calendar.schedule import LocalSchedule
from sumaclock_dagster.calendar.zones import zone_named


@dataclass(frozen=True, slots=True)
class PreviewLine:
    """One occurrence.

    occurrence: aware, in UTC.
    local: the same moment in the schedule's zone, aware by the UTC offset then in force.
    change: what a clock change does to it; its value is a text for people.
    """

    occurrence: datetime
    local: datetime
    change: ClockChange


def preview(schedule: LocalSchedule, after: datetime, count: int) -> list[PreviewLine]:
    """The first `count` occurrences strictly after the aware `after`; fewer where there are no more.

    Raises as `next_occurrence` does.
    """
    return list(islice(_lines(schedule, after), max(count, 0)))


def _lines(schedule: LocalSchedule, after: datetime) -> Iterator[PreviewLine]:
    zone = zone_named(schedule.timezone)
    offset = _local(after, zone).utcoffset()
    placement = next_placement(schedule, after)
    while placement:
        occurrence, change = placement
        local = _local(occurrence, zone)
        if change is ClockChange.NONE and local.utcoffset() != offset and schedule.cron:
            change = ClockChange.OFFSET
        yield PreviewLine(occurrence, local, change)
        offset = local.utcoffset()
        placement = next_placement(schedule, occurrence)


def _local(moment: datetime, zone: ZoneInfo) -> datetime:
    local = moment.astimezone(zone)
    # A plain offset, since a zone read from the package's file cannot be pickled or shown by name everywhere.
    return local.replace(tzinfo=timezone(local.utcoffset() or timedelta(0)), fold=0)
