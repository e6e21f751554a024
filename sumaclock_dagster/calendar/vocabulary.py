"""The words of schedules by language. The process's own locale, which cron-descriptor takes names from, has no say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sumaclock_dagster.model import SumaclockError


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """One language.

    locale: its name in cron-descriptor. corrections: regular expressions and replacements for cron-descriptor's text.
    weekdays: from Sunday on; each_weekday: the same as in "on Mondays". months: from January on.
    ordinals: first to fifth. The texts with braces are formats.
    """

    locale: str
    corrections: Sequence[tuple[str, str]]
    weekdays: Sequence[str]
    each_weekday: Sequence[str]
    months: Sequence[str]
    ordinals: Mapping[int, str]
    last: str
    join_and: str
    join_or: str
    at: str
    hourly: str
    within_hours: str
    every_day: str
    one_date: str
    several_dates: str
    run_of_dates: str
    steps_of_dates: str
    last_date: str
    last_workday: str
    on_dates: str
    on_weekdays: str
    run_of_weekdays: str
    nth_weekday: str
    on_nth_weekday: str
    only_if: str
    in_months: str
    run_of_months: str
    once: str


ENGLISH = Vocabulary(
    locale="en_US",
    corrections=((", and ", " and "), ("^At 1 minutes", "At 1 minute")),
    weekdays=("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"),
    each_weekday=("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"),
    months=(
        *("January", "February", "March", "April", "May", "June"),
        *("July", "August", "September", "October", "November", "December"),
    ),
    ordinals={1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"},
    last="last",
    join_and="and",
    join_or="or",
    at="At {}",
    hourly="Every hour from {} to {}",
    within_hours="within the hours {}",
    every_day="every day",
    one_date="day {}",
    several_dates="days {}",
    run_of_dates="days {} to {}",
    steps_of_dates="days {0} to {1} in steps of {2}",
    last_date="the last day",
    last_workday="the last working day (Monday to Friday)",
    on_dates="on {} of the month",
    on_weekdays="on {}",
    run_of_weekdays="from {} to {}",
    nth_weekday="the {} {} of the month",
    on_nth_weekday="on {}",
    only_if="{}, only if that is {}",
    in_months="in {}",
    run_of_months="from {} to {}",
    once="Once, on {weekday} {day} {month} {year} at {time} ({timezone}, {offset})",
)
SPANISH = Vocabulary(
    locale="es_ES",
    corrections=(
        (", y ", " y "),
        ("^A los 1 minutos de la hora", "En el minuto 1 de la hora"),
        # One o'clock is singular; a list that begins with it is not.
        (r"las (01:\d\d)(?!,| y \d)", r"la \1"),
    ),
    weekdays=("domingo", "lunes", "martes", "miércoles", "jueves", "viernes", "sábado"),
    each_weekday=("domingos", "lunes", "martes", "miércoles", "jueves", "viernes", "sábados"),
    months=(
        *("enero", "febrero", "marzo", "abril", "mayo", "junio"),
        *("julio", "agosto", "septiembre", "octubre", "noviembre", "diciembre"),
    ),
    ordinals={1: "primer", 2: "segundo", 3: "tercer", 4: "cuarto", 5: "quinto"},
    last="último",
    join_and="y",
    join_or="o",
    at="A las {}",
    hourly="Cada hora, de las {} a las {}",
    within_hours="dentro de las horas {}",
    every_day="todos los días",
    one_date="el día {}",
    several_dates="los días {}",
    run_of_dates="los días {} a {}",
    steps_of_dates="los días {0} a {1} de {2} en {2}",
    last_date="el último día",
    last_workday="el último día laborable (de lunes a viernes)",
    on_dates="{} del mes",
    on_weekdays="los {}",
    run_of_weekdays="de {} a {}",
    nth_weekday="el {} {} del mes",
    on_nth_weekday="{}",
    only_if="{}, solo si es {}",
    in_months="en {}",
    run_of_months="de {} a {}",
    once="Una vez, el {weekday} {day} de {month} de {year} a las {time} ({timezone}, {offset})",
)
VOCABULARIES = {"en": ENGLISH, "es": SPANISH}


def vocabulary_of(language: str) -> Vocabulary:
    """By language or locale: 'es', 'es-ES' and 'es_ES.UTF-8' are the same. Raises SumaclockError for an unknown one."""
    known = VOCABULARIES.get(language.replace("_", "-").partition("-")[0].lower())
    if known is None:
        raise SumaclockError(
            f"language {language[:20]!r}: schedules can be said in {' and '.join(VOCABULARIES)} only; "
            "write for example 'en'."
        )
    return known
