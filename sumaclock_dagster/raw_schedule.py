"""Raw schedules (UTC): the strict grammar that they must follow, and what they mean to pg_cron.

pg_cron's own parser accepts much that means something else than it says, so nothing reaches it unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

from sumaclock_dagster.model import SumaclockError

MAX_LENGTH = 999
SECONDS = re.compile(r"([1-9]|[1-5][0-9]) seconds")
TERM = re.compile(r"(?P<first>\*|[0-9]+|[A-Za-z]{3})(?:-(?P<last>[0-9]+|[A-Za-z]{3}))?(?:/(?P<step>[0-9]+))?")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FOREIGN = {
    "#": "'#' (n-th weekday) means nothing to pg_cron, which would fire on every such weekday",
    "?": "'?' means nothing to pg_cron, and '*' says the same",
    "~": "'~' (random) means nothing to pg_cron",
}
FOREIGN_LETTERS = {
    "L": "'L' (last) means nothing to pg_cron",
    "W": "'W' (nearest weekday) means nothing to pg_cron",
    "LW": "'LW' (last weekday) means nothing to pg_cron",
    "H": "'H' (hashed) means nothing to pg_cron",
}


@dataclass(frozen=True, slots=True)
class ClockFeatures:
    """What the installed pg_cron understands beyond five plain fields.

    seconds: "1 seconds" to "59 seconds" (1.5 and later).
    last_day: `$` as day of month (1.6.3 and later).
    """

    seconds: bool
    last_day: bool


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    low: int
    high: int
    example: str
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int | None:
        """The value of a number or a name, or None where it is neither."""
        if text.isdigit():
            return int(text)
        upper = text.upper()
        return self.names.index(upper) + self.low if upper in self.names else None


Refuse = Callable[[str, Field, str, str], SumaclockError]
MINUTE, HOUR, DAY, MONTH, WEEKDAY = FIELDS = (
    Field("minute", 0, 59, "*/15"),
    Field("hour", 0, 23, "9-17"),
    Field("day of month", 1, 31, "1,15"),
    Field("month", 1, 12, "JAN-MAR", MONTHS),
    Field("day of week", 0, 7, "MON-FRI", WEEKDAYS),
)


def check(schedule: str, features: ClockFeatures) -> None:
    """Pass a raw schedule that pg_cron reads as it is written.

    Raises SumaclockError that names the field, the reason and a valid example.
    """
    _check_whole(schedule)
    if "second" in schedule.lower():
        _check_seconds(schedule, features)
        return
    texts = _split(schedule)
    for field, text in zip(FIELDS, texts, strict=True):
        if field is DAY and text == "$":
            _check_last_day(schedule, features)
        else:
            for term in text.split(","):
                _check_term(schedule, field, text, term)
    _check_fires(schedule, texts)


def next_utc(schedule: str, after: datetime) -> datetime:
    """The first minute strictly after the aware `after` at which pg_cron fires `schedule`; aware, in UTC.

    For "N seconds", which pg_cron counts from its last start and aligns to nothing, `after` plus N seconds.
    Raises SumaclockError for a schedule that `check` refuses, ValueError for a naive `after`.
    """
    if after.tzinfo is None:
        raise ValueError("`after` must be an aware datetime.")
    check(schedule, ClockFeatures(seconds=True, last_day=True))
    naive = after.astimezone(UTC).replace(tzinfo=None)
    seconds = SECONDS.fullmatch(schedule)
    if seconds:
        return (naive + timedelta(seconds=int(seconds[1]))).replace(tzinfo=UTC)
    return next(CronSim(_for_cronsim(schedule.split(" ")), naive)).replace(tzinfo=UTC)


def previous_utc(schedule: str, before: datetime) -> datetime | None:
    """The last minute strictly before the aware `before` at which pg_cron fires `schedule`; aware, in UTC. None for
    "N seconds", which knows no minutes. Raises as `next_utc` does.
    """
    if before.tzinfo is None:
        raise ValueError("`before` must be an aware datetime.")
    check(schedule, ClockFeatures(seconds=True, last_day=True))
    if SECONDS.fullmatch(schedule):
        return None
    naive = before.astimezone(UTC).replace(tzinfo=None)
    return next(CronSim(_for_cronsim(schedule.split(" ")), naive, reverse=True)).replace(tzinfo=UTC)


def _check_whole(schedule: str) -> None:
    if not schedule.strip():
        raise SumaclockError("The schedule is empty. Write five fields in UTC, for example '*/15 9-17 * * MON-FRI'.")
    if len(schedule) > MAX_LENGTH:
        raise SumaclockError(
            f"The schedule has {len(schedule)} characters and pg_cron takes at most {MAX_LENGTH}. "
            "Write ranges and steps instead of lists, for example '*/15 9-17 * * MON-FRI'."
        )
    if schedule.startswith("@"):
        spelled = MACROS.get(schedule.lower())
        hint = f"write '{spelled}'" if spelled else "write five fields in UTC, for example '0 9 * * *'"
        raise SumaclockError(f"Schedule {schedule!r}: macros are not allowed; {hint}.")


def _check_seconds(schedule: str, features: ClockFeatures) -> None:
    if not SECONDS.fullmatch(schedule):
        raise SumaclockError(
            f"Schedule {schedule!r}: an interval is written as 1 to 59, one space and 'seconds', "
            "for example '30 seconds'. From a minute on use five fields, for example '*/5 * * * *'."
        )
    if not features.seconds:
        raise SumaclockError(
            f"Schedule {schedule!r}: the installed pg_cron knows no seconds (1.5 and later do). "
            "Use five fields, for example '* * * * *' for every minute, or upgrade pg_cron."
        )


def _split(schedule: str) -> list[str]:
    texts = schedule.split(" ")
    if texts != schedule.split():
        raise SumaclockError(
            f"Schedule {schedule!r}: separate the fields by exactly one space, with none before or after, "
            "for example '0 9 * * MON'."
        )
    if len(texts) != len(FIELDS):
        raise SumaclockError(
            f"Schedule {schedule!r} has {len(texts)} fields; it takes exactly five: minute, hour, day of month, month, "
            "day of week (no seconds or year), for example '0 9 * * MON'."
        )
    return texts


def _check_last_day(schedule: str, features: ClockFeatures) -> None:
    if not features.last_day:
        raise SumaclockError(
            f"Schedule {schedule!r}, day of month '$': the installed pg_cron cannot tell the last day (1.6.3 and later "
            "can). Use a day that every month has, for example '28', or upgrade pg_cron."
        )


def _check_term(schedule: str, field: Field, text: str, term: str) -> None:
    parts = TERM.fullmatch(term)
    if parts is None or (parts["first"] == "*" and parts["last"]):
        raise _refusal(schedule, field, text, _syntax_reason(field, term))
    first = field.low if parts["first"] == "*" else field_value(schedule, field, text, parts["first"], _refusal)
    last = field_value(schedule, field, text, parts["last"], _refusal) if parts["last"] else None
    if last is not None and first > last:
        reason = f"the range '{term}' runs backwards and would never match"
        raise _refusal(schedule, field, text, reason, unwrapped(field, first, last))
    if parts["step"] is None:
        return
    if parts["first"] != "*" and last is None:
        hint = f"{first}-{field.high}/{parts['step']}" if first < field.high else None
        raise _refusal(schedule, field, text, f"the step in '{term}' needs a range before it", hint)
    if last == first:
        raise _refusal(schedule, field, text, f"the step in '{term}' needs a range of more than one value", str(first))
    if not 1 <= int(parts["step"]) <= field.high:
        raise _refusal(schedule, field, text, f"the step in '{term}' must be 1 to {field.high}")


def field_value(schedule: str, field: Field, text: str, written: str, refuse: Refuse) -> int:
    """The number that `written` stands for. Raises `refuse(schedule, field, text, reason)` where it is none."""
    number = field.number(written)
    if number is None:
        reason = f"the name {written!r} is not one of {', '.join(field.names)}"
        raise refuse(schedule, field, text, reason if field.names else f"{written!r} is not a number")
    if not field.low <= number <= field.high:
        raise refuse(schedule, field, text, f"{written} is not between {field.low} and {field.high}")
    return number


def unwrapped(field: Field, first: int, last: int) -> str:
    """A range that runs over the field's end, as a list that pg_cron understands."""
    if field is WEEKDAY:
        return f"{first}-7" + ("" if last == 0 else ",1" if last == 1 else f",1-{last}")
    head = str(first) if first == field.high else f"{first}-{field.high}"
    tail = str(last) if last == field.low else f"{field.low}-{last}"
    return f"{head},{tail}"


def _syntax_reason(field: Field, term: str) -> str:
    if not term:
        return "the list has an empty entry"
    if "$" in term:
        return "'$' stands alone and only as day of month"
    letters = re.sub("[^A-Za-z]", "", term)
    foreign = next((reason for sign, reason in FOREIGN.items() if sign in term), FOREIGN_LETTERS.get(letters.upper()))
    if foreign:
        return foreign
    if len(letters) > 3 and field.names:
        return f"names have three letters ({', '.join(field.names)})"
    return f"{term!r} is none of '*', '*/n', 'a', 'a-b', 'a-b/n' or a list of them"


def _refusal(schedule: str, field: Field, text: str, reason: str, hint: str | None = None) -> SumaclockError:
    shown = f"Schedule {schedule!r}, {field.name} {text!r}" if text != schedule else f"Schedule {schedule!r}"
    return SumaclockError(f"{shown}: {reason}; write for example '{hint or field.example}'.")


def _check_fires(schedule: str, texts: list[str]) -> None:
    """cronsim has the last word: it finds days that no month of the schedule has."""
    try:
        CronSim(_for_cronsim(texts), datetime(2000, 1, 1))
    except CronSimError:
        raise _refusal(
            schedule, DAY, texts[2], f"no month of {texts[3]!r} has such a day, so it would never fire", "28"
        ) from None


def _for_cronsim(texts: list[str]) -> str:
    return " ".join("L" if field is DAY and text == "$" else text for field, text in zip(FIELDS, texts, strict=True))
