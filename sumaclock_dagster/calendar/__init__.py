"""The calendar: when a schedule in somebody's local time falls on the UTC line. Pure: no database, no wall clock.

cronsim reads crons and walks wall-clock matches; `occurrences` alone places them in UTC.
"""

from sumaclock_dagster.calendar.occurrences import ClockChange, next_occurrence, occurrences
from sumaclock_dagster.calendar.one_shot import pg_cron_for
from sumaclock_dagster.calendar.preview import PreviewLine, preview
from sumaclock_dagster.calendar.schedule import DEFAULT_TIMEZONE, LocalSchedule, parse_schedule
from sumaclock_dagster.calendar.wall_clock import instant_at
from sumaclock_dagster.calendar.words import in_words
from sumaclock_dagster.calendar.zones import zone_data_version

__all__ = [
    "DEFAULT_TIMEZONE",
    "ClockChange",
    "LocalSchedule",
    "PreviewLine",
    "in_words",
    "instant_at",
    "next_occurrence",
    "occurrences",
    "parse_schedule",
    "pg_cron_for",
    "preview",
    "zone_data_version",
]
