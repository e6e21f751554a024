"""What a local schedule may say: every refusal names the field, the reason and an example that is right."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sumaclock_dagster.calendar import LocalSchedule, next_occurrence, parse_schedule
from sumaclock_dagster.model import SumaclockError

RIGHT = [
    "* * * * *",
    "*/15 9-17 * * MON-FRI",
    "*/59 */23 */31 */12 */7",
    "0 9 * * mon,Wed,FRI",
    "05 09 01 01 *",
    "0 9 L * *",
    "0 9 l * *",
    "0 9 LW,15 * *",
    "0 9 * * 5L",
    "0 9 * * 5l",
    "0 9 * * 0L,7L",
    "0 9 * * 1#1,MON#3",
    "0 9 * * 7",
    "0 9 * * 5-7",
    "0 0 29 2 *",
    "0 0 30 2 MON",
    "*,5 * * * *",
]
WRONG = [
    # (cron, the field that the error must name, a word of the reason, the example that it must give)
    ("", "cron", "empty", "0 9 * * MON-FRI"),
    (" \t ", "cron", "empty", "0 9 * * MON-FRI"),
    ("0 9 * *", "cron", "4 fields", "0 9 * * MON-FRI"),
    ("0 0 9 * * MON", "cron", "6 fields", "0 9 * * MON-FRI"),
    ("@daily", "cron", "macros", "0 0 * * *"),
    ("@Monthly ", "cron", "macros", "0 0 1 * *"),
    ("@reboot", "cron", "macros", "0 9 * * MON-FRI"),
    ("0 9 * * " + "1," * 124 + "1", "cron", "257 characters", "*/15 9-17 * * MON-FRI"),
    ("0 9 * * FRI-MON", "day of week", "backwards", "5-7,1"),
    ("0 9 * * 6-0", "day of week", "backwards", "6-7"),
    ("0 22-2 * * *", "hour", "backwards", "22-23,0-2"),
    ("0 9 * NOV-FEB *", "month", "backwards", "11-12,1-2"),
    ("60 9 * * *", "minute", "between 0 and 59", "*/15"),
    ("0 24 * * *", "hour", "between 0 and 23", "9-17"),
    ("0 9 0 * *", "day of month", "between 1 and 31", "1,15"),
    ("0 9 * 13 *", "month", "between 1 and 12", "JAN-MAR"),
    ("0 9 * * 8", "day of week", "between 0 and 7", "MON-FRI"),
    ("0 9 * * 8L", "day of week", "between 0 and 7", "MON-FRI"),
    ("0 9 * * MON#6", "day of week", "first to fifth", "MON#1"),
    ("0 9 * * MON#0", "day of week", "first to fifth", "MON#1"),
    ("0 9 * * FRIL", "day of week", "number", "5L"),
    ("0 9 * * L", "day of week", "behind a weekday", "MON-FRI"),
    ("0 9 * * 1#L", "day of week", "as in 'MON#2'", "MON-FRI"),
    ("0 9 1#2 * *", "day of month", "for the day of week", "1,15"),
    ("0 9 L-3 * *", "day of month", "stands alone", "1,15"),
    ("0 9 L/2 * *", "day of month", "stands alone", "1,15"),
    ("0 9 15W * *", "day of month", "nearest weekday", "1,15"),
    ("0 9 $ * *", "day of month", "'L' as day of month", "1,15"),
    ("0 9 ? * *", "day of month", "'*' says the same", "1,15"),
    ("H 9 * * *", "minute", "hashed", "*/15"),
    ("~ 9 * * *", "minute", "random", "*/15"),
    ("5/10 * * * *", "minute", "needs a range", "5-59/10"),
    ("5-5/10 * * * *", "minute", "more than one value", "5"),
    ("*/0 * * * *", "minute", "1 to 59", "*/15"),
    ("*/60 * * * *", "minute", "1 to 59", "*/15"),
    ("0 9 1,,15 * *", "day of month", "empty entry", "1,15"),
    ("0 9 * * MONDAY", "day of week", "three letters", "MON-FRI"),
    ("0 9 * MAY MAY", "day of week", "not one of SUN", "MON-FRI"),
    ("MON 9 * * *", "minute", "not a number", "*/15"),
    ("*-5 9 * * *", "minute", "none of", "*/15"),
    ("-1 9 * * *", "minute", "none of", "*/15"),
    ("0 9\x00 * * *", "hour", "none of", "9-17"),
    ("０ 9 * * *", "minute", "none of", "*/15"),
    ("0 0 30 2 *", "day of month", "never fire", "28"),
    ("0 0 31 4,6,9,11 */2", "day of month", "never fire", "28"),
    ("0 0 */31 * 1#2", "day of month", "never fire", "28"),
]


@pytest.mark.parametrize("cron", RIGHT)
def test_right(cron: str) -> None:
    assert parse_schedule(cron) == LocalSchedule(cron=cron, timezone="Europe/Madrid")


@pytest.mark.parametrize(("cron", "field", "reason", "example"), WRONG)
def test_wrong(cron: str, field: str, reason: str, example: str) -> None:
    with pytest.raises(SumaclockError) as refusal:
        parse_schedule(cron)
    text = str(refusal.value)
    assert re.search(rf"\b{field}\b", text)
    assert reason in text
    assert f"for example '{example}'" in text
    assert len(text) < 400


@pytest.mark.parametrize("wrong", [case for case in WRONG if case[1] != "cron"], ids=lambda case: case[0])
def test_the_example_of_a_refusal_is_right(wrong: tuple[str, str, str, str]) -> None:
    fields = ["minute", "hour", "day of month", "month", "day of week"]
    texts = ["0", "9", "*", "*", "*"]
    texts[fields.index(wrong[1])] = wrong[3]
    assert parse_schedule(" ".join(texts)).cron


def test_spaces_are_made_single() -> None:
    assert parse_schedule("  0 9\t* *\u00a0MON\n").cron == "0 9 * * MON"


@given(st.text(max_size=300) | st.lists(st.text("0123456789*/,-#LWMONFRI", max_size=8), max_size=6).map(" ".join))
def test_whatever_is_typed_is_read_or_refused(cron: str) -> None:
    try:
        schedule = parse_schedule(cron)
    except SumaclockError as refusal:
        assert "example" in str(refusal)  # noqa: PT017
    else:
        assert next_occurrence(schedule, datetime(2026, 1, 1, tzinfo=UTC)) is not None


@pytest.mark.parametrize(
    ("timezone", "hint"),
    [
        ("europe/madrid", "'Europe/Madrid'"),
        (" Europe/Madrid ", "'Europe/Madrid'"),
        ("Europe/Madird", "'Europe/Madrid'"),
        ("Madrid", "'Europe/Madrid'"),
        ("new york", "'America/New_York'"),
        ("Asia/Calcuta", "'Asia/Calcutta'"),
        ("utc", "'UTC'"),
        ("UTC+2", "'UTC'"),
        ("", "'Europe/Madrid'"),
        ("../../../etc/passwd", "'Europe/Madrid'"),
        ("Factory", "'Europe/Madrid'"),
        ("Europe/Madrid\x00", "'Europe/Madrid'"),
        ("x" * 100_000, "'Europe/Madrid'"),
    ],
)
def test_an_unknown_zone_is_refused_with_those_that_come_close(timezone: str, hint: str) -> None:
    for given_schedule in ({"cron": "0 9 * * *"}, {"instant": datetime(2026, 1, 1, tzinfo=UTC)}):
        with pytest.raises(SumaclockError, match=r"timezone .*no such zone in the zone data 20") as refusal:
            parse_schedule(**given_schedule, timezone=timezone)  # type: ignore[arg-type]
        assert f"for example {hint}" in str(refusal.value)
        assert len(str(refusal.value)) < 300


def test_no_proposal_turns_the_sign_of_an_offset_around() -> None:
    with pytest.raises(SumaclockError) as refusal:
        parse_schedule("0 9 * * *", timezone="GMT+2")
    assert "Etc/" not in str(refusal.value)


def test_an_instant_is_kept_in_utc() -> None:
    moment = datetime(2026, 12, 1, 9, 0, tzinfo=timezone(timedelta(hours=1)))
    schedule = parse_schedule(instant=moment, timezone="Asia/Kathmandu")
    assert schedule == LocalSchedule(instant=moment, timezone="Asia/Kathmandu")
    assert schedule.instant is not None
    assert schedule.instant.tzinfo is UTC


@pytest.mark.parametrize(
    ("instant", "reason"),
    [
        (datetime(2026, 12, 1, 9), "no UTC offset"),
        (datetime(2026, 12, 1, 9, 0, 1, tzinfo=UTC), "whole minute"),
        (datetime(2026, 12, 1, 9, 0, 0, 1, tzinfo=UTC), "whole minute"),
        (datetime(2026, 12, 1, 9, tzinfo=timezone(timedelta(seconds=30))), "whole minute"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "beyond the years"),
    ],
)
def test_wrong_instants(instant: datetime, reason: str) -> None:
    with pytest.raises(SumaclockError, match=rf"instant '{re.escape(instant.isoformat())}'.*{reason}.*for example"):
        parse_schedule(instant=instant)


def test_one_of_cron_and_instant() -> None:
    with pytest.raises(SumaclockError, match="neither was given"):
        parse_schedule()
    with pytest.raises(SumaclockError, match="both were given"):
        parse_schedule("0 9 * * *", datetime(2026, 1, 1, tzinfo=UTC))
