"""What people see of a schedule: its next occurrences, and the schedule in words."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings

from sumaclock_dagster.calendar import ClockChange, LocalSchedule, in_words, parse_schedule, preview
from sumaclock_dagster.model import SumaclockError
from tests.test_calendar_oracle import CRONS

NONE, MOVED, FIRST, BOTH, OFFSET = ClockChange


def shown(schedule: LocalSchedule, after: str, count: int) -> list[tuple[str, str, ClockChange]]:
    lines = preview(schedule, datetime.fromisoformat(after), count)
    return [(f"{line.occurrence:%d %H:%M}", line.local.isoformat(" ", "minutes"), line.change) for line in lines]


def test_preview_marks_what_a_gap_moves() -> None:
    assert shown(parse_schedule("30 2 * * *"), "2026-03-28T00:00Z", 4) == [
        ("28 01:30", "2026-03-28 02:30+01:00", NONE),
        ("29 01:00", "2026-03-29 03:00+02:00", MOVED),
        ("30 00:30", "2026-03-30 02:30+02:00", NONE),
        ("31 00:30", "2026-03-31 02:30+02:00", NONE),
    ]


def test_preview_marks_the_first_of_two() -> None:
    assert shown(parse_schedule("30 2 * * *"), "2026-10-24T12:00Z", 2) == [
        ("25 00:30", "2026-10-25 02:30+02:00", FIRST),
        ("26 01:30", "2026-10-26 02:30+01:00", OFFSET),
    ]


def test_preview_marks_both_passes_of_a_repeated_hour() -> None:
    assert shown(parse_schedule("30 * * * *"), "2026-10-24T23:00Z", 4) == [
        ("24 23:30", "2026-10-25 01:30+02:00", NONE),
        ("25 00:30", "2026-10-25 02:30+02:00", BOTH),
        ("25 01:30", "2026-10-25 02:30+01:00", BOTH),
        ("25 02:30", "2026-10-25 03:30+01:00", NONE),
    ]


def test_preview_marks_another_offset_also_on_its_first_line() -> None:
    assert shown(parse_schedule("0 9 * * MON"), "2026-03-28T00:00Z", 2) == [
        ("30 07:00", "2026-03-30 09:00+02:00", OFFSET),
        ("06 07:00", "2026-04-06 09:00+02:00", NONE),
    ]


def test_preview_of_an_instant_and_of_none() -> None:
    schedule = parse_schedule(instant=datetime(2026, 10, 25, 1, 30, tzinfo=UTC))
    assert shown(schedule, "2026-01-01T00:00Z", 5) == [("25 01:30", "2026-10-25 02:30+01:00", NONE)]
    assert preview(schedule, datetime(2027, 1, 1, tzinfo=UTC), 5) == []
    assert preview(parse_schedule("0 9 * * *"), datetime(2027, 1, 1, tzinfo=UTC), 0) == []


def test_preview_lines_are_one_moment_in_utc_and_local_time() -> None:
    for line in preview(parse_schedule("8 */6 * * *", timezone="Australia/Lord_Howe"), datetime.now(UTC), 50):
        assert line.occurrence == line.local
        assert line.occurrence.utcoffset() == timedelta(0)


SAID = [
    ("0 9 * * 1", "At 09:00, on Monday", "A las 09:00, los lunes"),
    ("0 1 * * *", "At 01:00, every day", "A la 01:00, todos los días"),
    ("*/15 * * * *", "Every 15 minutes", "Cada 15 minutos"),
    ("* * * * *", "Every minute", "Cada minuto"),
    ("0 * * * *", "Every hour", "Cada hora"),
    ("1 * * * *", "At 1 minute past the hour", "En el minuto 1 de la hora"),
    ("0 9,17 * * *", "At 09:00 and 17:00, every day", "A las 09:00 y 17:00, todos los días"),
    (
        "0,30 1,2 * * *",
        "At 01:00, 01:30, 02:00 and 02:30, every day",
        "A las 01:00, 01:30, 02:00 y 02:30, todos los días",
    ),
    (
        "5 9-17 * * MON-FRI",
        "Every hour from 09:05 to 17:05, from Monday to Friday",
        "Cada hora, de las 09:05 a las 17:05, de lunes a viernes",
    ),
    (
        "*/5 1-4 * * 6,0",
        "Every 5 minutes, between 01:00 and 04:59, on Saturday and Sunday",
        "Cada 5 minutos, entre la 01:00 y las 04:59, los sábados y domingos",
    ),
    # Seven does not divide the hour, nor five the day: neither is "every".
    (
        "*/7 * * * *",
        "At 0, 7, 14, 21, 28, 35, 42, 49 and 56 minutes past the hour",
        "A los 0, 7, 14, 21, 28, 35, 42, 49 y 56 minutos de la hora",
    ),
    (
        "0 */5 * * *",
        "At 00:00, 05:00, 10:00, 15:00 and 20:00, every day",
        "A las 00:00, 05:00, 10:00, 15:00 y 20:00, todos los días",
    ),
    (
        "*/10 */8 * * *",
        "Every 10 minutes, within the hours 0, 8 and 16, every day",
        "Cada 10 minutos, dentro de las horas 0, 8 y 16, todos los días",
    ),
    # Either day, both days, and either that is every day.
    ("0 9 13 * 5", "At 09:00, on day 13 of the month or on Friday", "A las 09:00, el día 13 del mes o los viernes"),
    (
        "0 9 */2 * 1",
        "At 09:00, on days 1 to 31 in steps of 2 of the month, only if that is Monday",
        "A las 09:00, los días 1 a 31 de 2 en 2 del mes, solo si es lunes",
    ),
    (
        "0 9 1-7 * */7",
        "At 09:00, on days 1 to 7 of the month, only if that is Sunday",
        "A las 09:00, los días 1 a 7 del mes, solo si es domingo",
    ),
    ("0 9 1-31 * 1", "At 09:00, every day", "A las 09:00, todos los días"),
    ("0 9 */1 * 1", "At 09:00, on Monday", "A las 09:00, los lunes"),
    ("0 9 * * */7", "At 09:00, on Sunday", "A las 09:00, los domingos"),
    ("0 9 * * 0,7", "At 09:00, on Sunday", "A las 09:00, los domingos"),
    (
        "0 9 * * */2",
        "At 09:00, on Tuesday, Thursday, Saturday and Sunday",
        "A las 09:00, los martes, jueves, sábados y domingos",
    ),
    (
        "0 9 */7 * *",
        "At 09:00, on days 1, 8, 15, 22 and 29 of the month",
        "A las 09:00, los días 1, 8, 15, 22 y 29 del mes",
    ),
    ("0 18 L * *", "At 18:00, on the last day of the month", "A las 18:00, el último día del mes"),
    (
        "0 18 LW,15 * *",
        "At 18:00, on day 15 and the last working day (Monday to Friday) of the month",
        "A las 18:00, el día 15 y el último día laborable (de lunes a viernes) del mes",
    ),
    ("0 9 * * 5L", "At 09:00, on the last Friday of the month", "A las 09:00, el último viernes del mes"),
    ("0 9 * * 1#1", "At 09:00, on the first Monday of the month", "A las 09:00, el primer lunes del mes"),
    (
        "0 9 * * 5L,1#2,3",
        "At 09:00, on Wednesday, on the second Monday of the month and on the last Friday of the month",
        "A las 09:00, los miércoles, el segundo lunes del mes y el último viernes del mes",
    ),
    (
        "0 9 15 * 1L",
        "At 09:00, on day 15 of the month or on the last Monday of the month",
        "A las 09:00, el día 15 del mes o el último lunes del mes",
    ),
    ("0 0 1 1 *", "At 00:00, on day 1 of the month, in January", "A las 00:00, el día 1 del mes, en enero"),
    ("0 9 * 3-6 SUN", "At 09:00, on Sunday, from March to June", "A las 09:00, los domingos, de marzo a junio"),
    ("0 9 * jan,JUL *", "At 09:00, every day, in January and July", "A las 09:00, todos los días, en enero y julio"),
]


@pytest.mark.parametrize(("cron", "english", "spanish"), SAID)
def test_in_words(cron: str, english: str, spanish: str) -> None:
    schedule = parse_schedule(cron, timezone="Europe/Madrid")
    assert in_words(schedule, "en") == f"{english} (Europe/Madrid)"
    assert in_words(schedule, "es") == f"{spanish} (Europe/Madrid)"


def test_an_instant_in_words() -> None:
    schedule = parse_schedule(instant=datetime(2026, 10, 25, 0, 30, tzinfo=UTC))
    assert in_words(schedule, "en") == "Once, on Sunday 25 October 2026 at 02:30 (Europe/Madrid, UTC+02:00)"
    assert (
        in_words(schedule, "es_ES")
        == "Una vez, el domingo 25 de octubre de 2026 a las 02:30 (Europe/Madrid, UTC+02:00)"
    )


@pytest.mark.parametrize("language", ["fr", "", "english", "e", "x" * 10_000])
def test_other_languages_are_refused(language: str) -> None:
    with pytest.raises(SumaclockError, match="en and es only"):
        in_words(parse_schedule("0 9 * * *"), language)


def test_words_do_not_come_from_the_process_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calendar, "day_name", ["x"] * 7)
    monkeypatch.setattr(calendar, "month_name", ["x"] * 13)
    assert (
        in_words(parse_schedule("0 9 * MAR MON"), "es-ES.UTF-8") == "A las 09:00, los lunes, en marzo (Europe/Madrid)"
    )


@settings(max_examples=300, deadline=None)
@given(CRONS)
def test_every_cron_has_words(cron: str) -> None:
    try:
        schedule = parse_schedule(cron, timezone="UTC")
    except SumaclockError as refusal:
        assert "would never fire" in str(refusal)  # noqa: PT017
        return
    for language in ("en", "es"):
        said = in_words(schedule, language)
        assert said.endswith(" (UTC)")
        assert not set(said) & set("*#?{}/"), said
        assert ", ," not in said
