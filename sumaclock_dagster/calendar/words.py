"""Schedules in words. cron-descriptor says the time of day, this module the days.

cron-descriptor joins days by "or" where both must match, calls Sunday ("*/7") "every 7 days", loses `L` and `#` in
lists, and takes the names of days and months from the process's locale. It is given hours and minutes in the forms that
it says well; "*/7" minutes, for example, are not "every 7 minutes", since each hour begins anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise

from cron_descriptor import ExpressionDescriptor, Options  # type: ignore[import-untyped]
from cronsim import CronSim

from sumaclock_dagster.calendar.local_cron import read_cron
from sumaclock_dagster.calendar.schedule import LocalSchedule
from sumaclock_dagster.calendar.vocabulary import Vocabulary, vocabulary_of
from sumaclock_dagster.calendar.zones import zone_named

# More clock times than these are said as minutes of hours, more dates as steps.
LISTED_TIMES = 6
LISTED_DATES = 5


def in_words(schedule: LocalSchedule, language: str) -> str:
    """One sentence without its full stop, in English ('en') or Spanish ('es'), with the zone at its end.

    Raises SumaclockError for another language, and for a cron or a zone that no longer resolves.
    """
    words = vocabulary_of(language)
    zone = zone_named(schedule.timezone)
    if schedule.instant is not None:
        return _corrected(_once(schedule.instant.astimezone(zone), schedule.timezone, words), words)
    fields = read_cron(schedule.cron or "").fields
    parts = [_corrected(_time(fields, words), words), _days(fields, words), _months(fields, words)]
    return ", ".join(part for part in parts if part) + f" ({schedule.timezone})"


def _once(local: datetime, timezone: str, words: Vocabulary) -> str:
    return words.once.format(
        weekday=words.weekdays[local.isoweekday() % 7],
        day=local.day,
        month=words.months[local.month - 1],
        year=local.year,
        time=f"{local:%H:%M}",
        timezone=timezone,
        offset=f"UTC{local.isoformat('T', 'minutes')[16:]}",
    )


def _time(fields: CronSim, words: Vocabulary) -> str:
    minutes, hours = sorted(fields.minutes), sorted(fields.hours)
    minute, hour = _term(minutes, 60), _term(hours, 24)
    if len(minutes) * len(hours) <= LISTED_TIMES or (len(minutes) == 1 and "," in hour):
        return words.at.format(_listed((f"{at:02}:{past:02}" for at in hours for past in minutes), words.join_and))
    if len(minutes) == 1 and "-" in hour:
        return words.hourly.format(f"{hours[0]:02}:{minute:0>2}", f"{hours[-1]:02}:{minute:0>2}")
    if len(minutes) > 1 and ("," in hour or "/" in hour):
        within = words.within_hours.format(_listed(map(str, hours), words.join_and))
        return f"{_described(minute, '*', words)}, {within}"
    if len(hours) == 1 and "-" not in minute:
        hour = f"{hour}-{hour}"
    return _described(minute, hour, words)


def _described(minute: str, hour: str, words: Vocabulary) -> str:
    options = Options(locale_code=words.locale, use_24hour_time_format=True)
    return str(ExpressionDescriptor(f"{minute} {hour} * * *", options).get_description())


def _term(values: Sequence[int], size: int) -> str:
    """A field's values as `*`, `a`, `a-b`, `*/n` where n divides the field's size, or a list."""
    if len(values) == size:
        return "*"
    if _step(values) == 1 and len(values) > 2:
        return f"{values[0]}-{values[-1]}"
    step = size // len(values)
    if len(values) > 1 and list(values) == list(range(0, size, step)):
        return f"*/{step}"
    return ",".join(map(str, values))


def _days(fields: CronSim, words: Vocabulary) -> str:
    plain, nth = _weekdays(fields, words)
    any_date, any_weekday = fields.days >= set(range(1, 32)), len(plain) == 7
    if (any_date and any_weekday) or (not fields.day_and and (any_date or any_weekday)):
        return words.every_day if len(fields.hours) < 24 else ""
    if any_weekday:
        return _dates(fields, words)
    on_weekdays = _on_weekdays(plain, words) + [words.on_nth_weekday.format(day) for day in nth]
    if any_date:
        return _listed(on_weekdays, words.join_and)
    if fields.day_and:
        either = _listed([words.weekdays[day] for day in plain] + nth, words.join_or)
        return words.only_if.format(_dates(fields, words), either)
    return _listed([_dates(fields, words), *on_weekdays], words.join_or)


def _dates(fields: CronSim, words: Vocabulary) -> str:
    dates = sorted(date for date in fields.days if date > 0)
    said = []
    if len(dates) > 2 and _step(dates) == 1:
        said.append(words.run_of_dates.format(dates[0], dates[-1]))
    elif len(dates) > LISTED_DATES and _step(dates):
        said.append(words.steps_of_dates.format(dates[0], dates[-1], _step(dates)))
    elif dates:
        form = words.one_date if len(dates) == 1 else words.several_dates
        said.append(form.format(_listed(map(str, dates), words.join_and)))
    said += [words.last_date] if CronSim.LAST in fields.days else []
    said += [words.last_workday] if CronSim.LAST_WEEKDAY in fields.days else []
    return words.on_dates.format(_listed(said, words.join_and))


def _weekdays(fields: CronSim, words: Vocabulary) -> tuple[list[int], list[str]]:
    """The plain weekdays from Monday to Sunday (0), and those of a certain place in the month, in words."""
    plain = {day % 7 for day in fields.weekdays if isinstance(day, int)}
    placed = {(nth, day[0] % 7) for day in fields.weekdays if not isinstance(day, int) for nth in [day[1]]}
    # The last one comes after the fifth.
    in_order = sorted(placed, key=lambda each: (each[0] == CronSim.LAST, each))
    names = [
        words.nth_weekday.format(words.ordinals.get(nth, words.last), words.weekdays[day]) for nth, day in in_order
    ]
    return sorted(plain, key=lambda day: day or 7), names


def _on_weekdays(plain: Sequence[int], words: Vocabulary) -> list[str]:
    if not plain:
        return []
    if len(plain) > 2 and _step([day or 7 for day in plain]) == 1:
        return [words.run_of_weekdays.format(words.weekdays[plain[0]], words.weekdays[plain[-1]])]
    return [words.on_weekdays.format(_listed((words.each_weekday[day] for day in plain), words.join_and))]


def _months(fields: CronSim, words: Vocabulary) -> str:
    months = sorted(fields.months)
    names = [words.months[month - 1] for month in months]
    if len(months) == 12:
        return ""
    if len(months) > 2 and _step(months) == 1:
        return words.run_of_months.format(names[0], names[-1])
    return words.in_months.format(_listed(names, words.join_and))


def _step(values: Sequence[int]) -> int:
    """The distance from each value to the next where it is always the same, else 0."""
    steps = {behind - before for before, behind in pairwise(values)}
    return steps.pop() if len(steps) == 1 else 0


def _listed(items: Iterable[str], join: str) -> str:
    """'a', 'a and b', 'a, b and c'."""
    *head, last = items
    return f"{', '.join(head)} {join} {last}" if head else last


def _corrected(text: str, words: Vocabulary) -> str:
    for wrong, right in words.corrections:
        text = re.sub(wrong, right, text)
    return text
