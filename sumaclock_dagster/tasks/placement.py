"""Where a task's next firing lies: the only place where a task meets the calendar."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from sumaclock_dagster.calendar import LocalSchedule, PreviewLine, pg_cron_for, preview
from sumaclock_dagster.calendar.occurrences import ClockChange

KEPT = 10
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Placement:
    """occurrence: aware, in UTC. upcoming: the next ten as JSON text (see `preview_json`), the occurrence first."""

    occurrence: datetime
    upcoming: str

    @property
    def clock_schedule(self) -> str:
        return pg_cron_for(self.occurrence)


def placement_after(schedule: LocalSchedule, after: datetime) -> Placement | None:
    """The first occurrence strictly after `after`, or None. Raises SumaclockError for what no longer resolves."""
    # Occurrences are whole minutes, so what follows is the same for all moments of a minute.
    return _placement_after_minute(schedule, after.replace(second=0, microsecond=0))


# Thousands of tasks fire by the same few schedules in the same minute.
@lru_cache(maxsize=1024)
def _placement_after_minute(schedule: LocalSchedule, minute: datetime) -> Placement | None:
    lines = preview(schedule, minute, KEPT)
    return Placement(lines[0].occurrence, json.dumps(preview_json(lines))) if lines else None


def placement_of_instant(schedule: LocalSchedule) -> Placement:
    """The instant itself, passed or not: late is late, not lost (rule 9)."""
    assert schedule.instant is not None  # noqa: S101  (asked for instants only)
    lines = preview(schedule, schedule.instant - MINUTE, 1)
    return Placement(schedule.instant, json.dumps(preview_json(lines)))


def preview_json(lines: list[PreviewLine]) -> list[dict[str, Any]]:
    """As `ai_tasks.upcoming` holds them: at (UTC), local (with offset), change (or null)."""
    return [
        {
            "at": f"{line.occurrence.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='minutes')}Z",
            "local": line.local.isoformat(timespec="minutes"),
            "change": None if line.change is ClockChange.NONE else line.change.value,
        }
        for line in lines
    ]
