"""Templates in the payload of kind dagster: {name}, {moment:%Y-%m-%d} and {moment-7d:%Y-%m-%d}, and nothing else."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sumaclock_dagster.calendar.zones import zone_named
from sumaclock_dagster.model import SumaclockError

MOMENTS = ("scheduled_for", "scheduled_local")
NAMES = (*MOMENTS, "organization_id", "user_id", "task_id", "title", "run_id")
# Those that every platform knows alike.
DIRECTIVES = frozenset("aAbBdfFGHIjmMpSTuUVwWyYzZ%")
DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
# Days and weeks keep the time of the wall clock; hours are 60 minutes each.
MOMENT = re.compile(r"(scheduled_for|scheduled_local)(?:([+-]\d{1,4})([hdw]))?")
UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
SHOWN = 100


@dataclass(frozen=True, slots=True)
class Occurrence:
    """What templates may name. scheduled_for: aware. timezone: of the task; None for a job: its schedule is in UTC."""

    scheduled_for: datetime
    organization_id: str
    user_id: str
    run_id: int
    timezone: str | None = None
    task_id: UUID | None = None
    title: str = ""


def fill(text: str, occurrence: Occurrence) -> str:
    """The text with its templates filled in; "{{" and "}}" stand for braces. Moments without a format are ISO 8601 to
    the minute. Raises SumaclockError for anything else in braces, and for what a job has none of."""
    if "{" not in text and "}" not in text:
        return text
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise _refusal(text, f"{error}. Write a brace that is no template twice") from None
    return "".join(
        literal + ("" if name is None else _value(text, name, spec or "", conversion, occurrence))
        for literal, name, spec, conversion in parts
    )


def fill_all(value: Any, occurrence: Occurrence) -> Any:
    """A JSON value with the templates of all its texts filled in; keys stay as they are."""
    if isinstance(value, str):
        return fill(value, occurrence)
    if isinstance(value, dict):
        return {key: fill_all(item, occurrence) for key, item in value.items()}
    if isinstance(value, list):
        return [fill_all(item, occurrence) for item in value]
    return value


def _value(text: str, name: str, spec: str, conversion: str | None, occurrence: Occurrence) -> str:
    moment = MOMENT.fullmatch(name)
    if (name not in NAMES and not moment) or conversion:
        shown = name + (f"!{conversion}" if conversion else "")
        raise _refusal(
            text, f"{{{shown[:SHOWN]}}} is none of {', '.join(NAMES)}. Write a brace that is no template twice"
        )
    if moment:
        return _moment(text, moment, spec, occurrence)
    if spec:
        raise _refusal(text, f"{name} takes no format; only {' and '.join(MOMENTS)} do")
    value = getattr(occurrence, name)
    if value is None:
        raise _refusal(text, f"a job has no {name}; only a task has one")
    return str(value)


def _moment(text: str, wanted: re.Match[str], spec: str, occurrence: Occurrence) -> str:
    name, count, unit = wanted.groups()
    moment = occurrence.scheduled_for.astimezone(UTC)
    shift = UNITS[unit] * int(count) if unit else timedelta()
    if unit == "h":
        moment += shift
    if name == "scheduled_local":
        if occurrence.timezone is None:
            raise _refusal(text, "a job has no local time, since its schedule is in UTC; use scheduled_for")
        moment = moment.astimezone(zone_named(occurrence.timezone))
    if unit != "h":
        moment += shift
    if not spec:
        return iso_minute(moment)
    unknown = {found for found in DIRECTIVE.findall(spec) if found not in DIRECTIVES or not found}
    if unknown or "{" in spec or "}" in spec:
        raise _refusal(text, f"the format '{spec[:SHOWN]}' holds more than %Y, %m, %d, %H, %M, %G, %V and their like")
    return moment.strftime(spec)


def iso_minute(moment: datetime) -> str:
    """ISO 8601 to the minute: with Z in UTC, else with the offset."""
    shown = moment.isoformat(timespec="minutes")
    return f"{shown[:-6]}Z" if shown.endswith("+00:00") and moment.tzinfo is UTC else shown


def _refusal(text: str, why: str) -> SumaclockError:
    return SumaclockError(f"The template '{text[:SHOWN]}' can't be filled in: {why}.")
