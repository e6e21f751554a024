"""Raw schedules: every rule of the grammar, and that pg_cron agrees with what it lets through."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import errors

from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.raw_schedule import FIELDS, WEEKDAY, ClockFeatures, check, next_utc, previous_utc, unwrapped
from tests.conftest import TestCluster

OLD = ClockFeatures(seconds=False, last_day=False)
NEW = ClockFeatures(seconds=True, last_day=True)

RIGHT = [
    "* * * * *",
    "*/15 * * * *",
    "*/1 */1 */1 */1 */1",
    "*/59 */23 */31 */12 */7",
    "0 9 * * MON-FRI",
    "0 9 * * mon,Wed,FRI",
    "0 0 1 jan *",
    "05 09 01 01 *",
    "0,15,30-45/5 9-17 1,15 JAN-MAR,DEC 1-5",
    "1-2/59 0-23 1-31 1-12 0-7",
    "0 0 * * 7",
    "0 0 * * 5-7",
    "0 0 * * SUN-SAT",
    "7-7 * * * *",
    "*,5 * * * *",
    "0 0 29 2 *",
    "0 0 31 1,2 *",
    "0 0 30 2 MON",
    ",".join(str(minute) for minute in range(60)) + " * * * *",
]

WRONG = [
    # (schedule, the field that the error must name, a word of the reason, the example that it must give)
    ("", None, "empty", "*/15 9-17 * * MON-FRI"),
    ("   ", None, "empty", "*/15 9-17 * * MON-FRI"),
    ("0 9 * *", None, "4 fields", "0 9 * * MON"),
    ("0 9 * * * *", None, "6 fields", "0 9 * * MON"),
    ("0 0 9 * * MON *", None, "7 fields", "0 9 * * MON"),
    (" 0 9 * * *", None, "one space", "0 9 * * MON"),
    ("0 9 * * * ", None, "one space", "0 9 * * MON"),
    ("0  9 * * *", None, "one space", "0 9 * * MON"),
    ("0\t9 * * *", None, "one space", "0 9 * * MON"),
    ("0 9 * * *\n", None, "one space", "0 9 * * MON"),
    ("0\u00a09 * * *", None, "one space", "0 9 * * MON"),
    ("@daily", None, "macros", "0 0 * * *"),
    ("@Hourly", None, "macros", "0 * * * *"),
    ("@yearly", None, "macros", "0 0 1 1 *"),
    ("@reboot", None, "macros", "0 9 * * *"),
    ("0," * 498 + "0 * * * *", None, "at most 999", "*/15 9-17 * * MON-FRI"),
    ("60 * * * *", "minute '60'", "0 and 59", "*/15"),
    ("0 24 * * *", "hour '24'", "0 and 23", "9-17"),
    ("0 0 0 * *", "day of month '0'", "1 and 31", "1,15"),
    ("0 0 32 * *", "day of month '32'", "1 and 31", "1,15"),
    ("0 0 * 13 *", "month '13'", "1 and 12", "JAN-MAR"),
    ("0 0 * 0 *", "month '0'", "1 and 12", "JAN-MAR"),
    ("0 0 * * 8", "day of week '8'", "0 and 7", "MON-FRI"),
    ("-1 * * * *", "minute '-1'", "none of", "*/15"),
    ("٣ * * * *", "minute '٣'", "none of", "*/15"),
    ("1.5 * * * *", "minute '1.5'", "none of", "*/15"),
    ("*/90 * * * *", "minute '*/90'", "1 to 59", "*/15"),
    ("*/60 * * * *", "minute '*/60'", "1 to 59", "*/15"),
    ("0 */24 * * *", "hour '*/24'", "1 to 23", "9-17"),
    ("*/0 * * * *", "minute '*/0'", "1 to 59", "*/15"),
    ("*/ * * * *", "minute '*/'", "none of", "*/15"),
    ("0-10/60 * * * *", "minute '0-10/60'", "1 to 59", "*/15"),
    ("5/15 * * * *", "minute '5/15'", "range", "5-59/15"),
    ("5-5/2 * * * *", "minute '5-5/2'", "more than one value", "5"),
    ("0 9 * * FRI-MON", "day of week 'FRI-MON'", "backwards", "5-7,1"),
    ("0 9 * * SAT-SUN", "day of week 'SAT-SUN'", "backwards", "6-7"),
    ("0 22-4 * * *", "hour '22-4'", "backwards", "22-23,0-4"),
    ("0 9 * DEC-JAN *", "month 'DEC-JAN'", "backwards", "12,1"),
    ("1,,2 * * * *", "minute '1,,2'", "empty entry", "*/15"),
    ("1, * * * *", "minute '1,'", "empty entry", "*/15"),
    ("*-5 * * * *", "minute '*-5'", "none of", "*/15"),
    ("** * * * *", "minute '**'", "none of", "*/15"),
    ("0 9 * * MONDAY", "day of week 'MONDAY'", "three letters", "MON-FRI"),
    ("0 9 * * FOO", "day of week 'FOO'", "FOO", "MON-FRI"),
    ("0 9 * MON *", "month 'MON'", "not one of JAN", "JAN-MAR"),
    ("0 MON * * *", "hour 'MON'", "not a number", "9-17"),
    ("0 9 * * 1#1", "day of week '1#1'", "every such weekday", "MON-FRI"),
    ("0 9 * * MON#2", "day of week 'MON#2'", "every such weekday", "MON-FRI"),
    ("0 9 L * *", "day of month 'L'", "(last)", "1,15"),
    ("0 9 * * 5L", "day of week '5L'", "(last)", "MON-FRI"),
    ("0 9 LW * *", "day of month 'LW'", "(last weekday)", "1,15"),
    ("0 9 15W * *", "day of month '15W'", "(nearest weekday)", "1,15"),
    ("0 9 ? * MON", "day of month '?'", "'*' says the same", "1,15"),
    ("H * * * *", "minute 'H'", "(hashed)", "*/15"),
    ("0~30 * * * *", "minute '0~30'", "(random)", "*/15"),
    ("$ * * * *", "minute '$'", "only as day of month", "*/15"),
    ("0 0 1,$ * *", "day of month '1,$'", "stands alone", "1,15"),
    ("0 0 31 2 *", "day of month '31'", "never fire", "28"),
    ("0 0 30,31 FEB *", "day of month '30,31'", "never fire", "28"),
    ("0 0 31 4,6 */2", "day of month '31'", "never fire", "28"),
    ("0 9 * * *;select", "day of week '*;select'", "three letters", "MON-FRI"),
    ("\0 * * * *", "minute '\\x00'", "none of", "*/15"),
    ("\ud800 * * * *", "minute '\\ud800'", "none of", "*/15"),
    ("0 seconds", None, "1 to 59", "30 seconds"),
    ("60 seconds", None, "1 to 59", "30 seconds"),
    ("30 second", None, "1 to 59", "30 seconds"),
    ("30  seconds", None, "1 to 59", "30 seconds"),
    ("30 Seconds", None, "1 to 59", "30 seconds"),
    ("-5 seconds", None, "1 to 59", "30 seconds"),
]


def refusal(schedule: str, features: ClockFeatures = NEW) -> str:
    with pytest.raises(SumaclockError) as caught:
        check(schedule, features)
    return str(caught.value)


@pytest.mark.parametrize("schedule", RIGHT)
def test_right_schedules_pass(schedule: str) -> None:
    check(schedule, OLD)
    assert next_utc(schedule, datetime(2026, 1, 1, tzinfo=UTC)) > datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("schedule", "field", "reason", "example"), WRONG)
def test_the_error_names_field_reason_and_example(schedule: str, field: str | None, reason: str, example: str) -> None:
    text = refusal(schedule)
    assert field is None or field in text
    assert reason in text
    assert f"'{example}'" in text
    assert text.isprintable(), "an error must not carry what it refuses to a terminal"


@pytest.mark.parametrize(("schedule", "field", "reason", "example"), [row for row in WRONG if row[1]])
def test_the_example_of_the_error_is_valid(schedule: str, field: str, reason: str, example: str) -> None:
    index = next(index for index, known in enumerate(FIELDS) if field.startswith(f"{known.name} "))
    texts = ["*"] * 5
    texts[index] = example
    check(" ".join(texts), OLD)
    assert f"'{example}'" in refusal(schedule)


def test_999_characters_pass_and_1000_do_not(pg_cron: Connection) -> None:
    longest = "0," * 495 + "0 * * * *"
    assert len(longest) == 999
    check(longest, OLD)
    assert takes(pg_cron, longest)
    assert "1000 characters" in refusal("0" + longest)


def test_seconds_only_where_pg_cron_knows_them() -> None:
    for seconds in range(1, 60):
        check(f"{seconds} seconds", NEW)
    assert "1.5" in refusal("30 seconds", OLD)


def test_last_day_only_where_pg_cron_knows_it() -> None:
    check("0 0 $ * *", NEW)
    assert "1.6.3" in refusal("0 0 $ * *", OLD)


def test_next_utc_is_strictly_after_and_in_utc() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert next_utc("0 12 * * *", noon) == noon + timedelta(days=1)
    assert next_utc("0 12 * * *", noon - timedelta(microseconds=1)) == noon
    elsewhere = datetime(2026, 3, 1, 22, 30, tzinfo=timezone(timedelta(hours=10)))
    found = next_utc("45 12 * * *", elsewhere)
    assert (found, found.tzinfo) == (noon + timedelta(minutes=45), UTC)
    assert next_utc("30 seconds", noon) == noon + timedelta(seconds=30)
    assert next_utc("0 0 $ 2 *", noon) == datetime(2027, 2, 28, tzinfo=UTC)
    assert next_utc("0 0 29 2 */7", noon) == datetime(2032, 2, 29, tzinfo=UTC)
    with pytest.raises(ValueError, match="aware"):
        next_utc("* * * * *", noon.replace(tzinfo=None))
    with pytest.raises(SumaclockError, match="backwards"):
        next_utc("0 9 * * FRI-MON", noon)


# ---- properties ----


@st.composite
def terms(draw: st.DrawFn, index: int) -> str:
    field = FIELDS[index]
    numbers = st.integers(field.low, field.high)
    low, high = sorted((draw(numbers), draw(numbers)))
    step = draw(st.integers(1, field.high))
    forms = ["*", f"*/{step}", str(low), f"{low:02d}", f"{low}-{high}"]
    if low < high:
        forms.append(f"{low}-{high}/{step}")
    if field.names:
        case = draw(st.sampled_from([str.upper, str.lower, str.title]))
        names = sorted(draw(st.tuples(*[st.integers(0, len(field.names) - 1)] * 2)))
        forms += [case(field.names[names[0]]), "-".join(case(field.names[name]) for name in names)]
    return draw(st.sampled_from(forms))


def fields(index: int) -> st.SearchStrategy[str]:
    return st.lists(terms(index), min_size=1, max_size=3).map(",".join)


schedules = st.tuples(*[fields(index) for index in range(5)]).map(" ".join)
junk = st.text(alphabet="0123456789*,-/$#LWH?~@ \tMONFRIJAN\0;'", min_size=0, max_size=3)


def accepted(schedule: str) -> bool:
    try:
        check(schedule, OLD)
    except SumaclockError:
        return False
    return True


def values(index: int, text: str) -> set[int]:
    """What a field stands for, spelt out without cronsim."""
    field = FIELDS[index]
    found: set[int] = set()
    for term in text.upper().split(","):
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        if first == "*":
            low, high = field.low, field.high
        else:
            low = int(first) if first.isdigit() else field.names.index(first) + field.low
            high = low if not last else int(last) if last.isdigit() else field.names.index(last) + field.low
        found |= set(range(low, high + 1, int(step or 1)))
    return {value % 7 for value in found} if field is WEEKDAY else found


def fires(schedule: str, minute: datetime) -> bool:
    """Cron's rule, minute by minute: day of month and day of week are OR unless one begins with a star."""
    texts = schedule.split(" ")
    sets = [values(index, text) for index, text in enumerate(texts)]
    day, weekday = minute.day in sets[2], minute.isoweekday() % 7 in sets[4]
    days = (day and weekday) if "*" in (texts[2][0], texts[4][0]) else (day or weekday)
    return minute.minute in sets[0] and minute.hour in sets[1] and minute.month in sets[3] and days


@given(schedules, st.datetimes(datetime(2024, 1, 1), datetime(2032, 1, 1)))
@settings(max_examples=150, deadline=None)
def test_next_utc_agrees_with_a_walk_minute_by_minute(schedule: str, after: datetime) -> None:
    if not accepted(schedule):
        assert refusal(schedule).find("never fire") > 0, "only a day that no month has may be refused here"
        return
    minute = after.replace(second=0, microsecond=0, tzinfo=UTC)
    found = next_utc(schedule, after.replace(tzinfo=UTC))
    assert found > after.replace(tzinfo=UTC)
    assert fires(schedule, found)
    for step in range(1, min(int((found - minute).total_seconds() // 60), 3000)):
        assert not fires(schedule, minute + timedelta(minutes=step))


@given(st.integers(0, 4), st.data())
@settings(max_examples=200, deadline=None)
def test_the_hint_for_a_wrapped_range_means_that_range(index: int, data: st.DataObject) -> None:
    field = FIELDS[index]
    last = data.draw(st.integers(field.low, field.high - 1))
    first = data.draw(st.integers(last + 1, field.high))
    hint = unwrapped(field, first, last)
    check(" ".join(hint if other == index else "*" for other in range(5)), OLD)
    wrapped = {*range(first, field.high + 1), *range(field.low, last + 1)}
    assert values(index, hint) == ({value % 7 for value in wrapped} if field is WEEKDAY else wrapped)


@given(st.text(max_size=40) | st.lists(schedules | junk, max_size=4).map("".join))
@settings(max_examples=300, deadline=None)
def test_check_passes_or_refuses_whatever_it_is_given(schedule: str) -> None:
    if accepted(schedule):
        after = datetime(2026, 1, 1, tzinfo=UTC)
        assert len(schedule) <= 999
        assert next_utc(schedule, after) > after


# ---- real pg_cron ----


@pytest.fixture(scope="module")
def clock(cluster: TestCluster) -> Iterator[Clock]:
    with Clock(cluster.file.cron_database_url, "postgres") as clock:
        yield clock


@pytest.fixture(scope="module")
def pg_cron(cluster: TestCluster) -> Iterator[Connection]:
    with connect(cluster.file.superuser_url, "test pg_cron") as conn:
        yield conn


def takes(pg_cron: Connection, schedule: str) -> bool:
    try:
        with pg_cron.transaction(force_rollback=True):
            pg_cron.execute("select cron.schedule('test', %s, 'select 1')", [schedule])
    except errors.InvalidParameterValue:
        return False
    return True


def mutate(schedule: str, position: int, extra: str, cut: int) -> str:
    position %= len(schedule)
    return schedule[:position] + extra + schedule[position + cut :]


@given(schedules, st.integers(0, 200), junk, st.integers(0, 2))
@settings(max_examples=300, deadline=None)
def test_pg_cron_takes_whatever_check_passes(
    pg_cron: Connection, schedule: str, position: int, extra: str, cut: int
) -> None:
    changed = mutate(schedule, position, extra, cut)
    for candidate in (schedule, changed):
        if accepted(candidate):
            assert takes(pg_cron, candidate)


def test_pg_cron_takes_every_feature_that_was_found(pg_cron: Connection, clock: Clock) -> None:
    features = clock.features()
    assert takes(pg_cron, "59 seconds") == features.seconds
    assert takes(pg_cron, "0 0 $ * *") == features.last_day
    assert all(takes(pg_cron, schedule) for schedule in RIGHT)


@pytest.mark.parametrize("schedule", ["0 9 * * 1#1", "0 9 * * * *", "0 9 * * FRI-MON", "0 9 31 2 *"])
def test_why_the_check_is_needed(pg_cron: Connection, schedule: str) -> None:
    assert takes(pg_cron, schedule), "pg_cron takes it without a word"
    assert not accepted(schedule)


@pytest.mark.parametrize(
    ("schedule", "before", "expected"),
    [
        ("*/5 * * * *", "2026-11-30T17:05", "2026-11-30T17:00"),
        ("*/5 * * * *", "2026-11-30T17:05:01", "2026-11-30T17:05"),
        ("0 9 * * MON-FRI", "2026-11-30T08:00", "2026-11-27T09:00"),
        ("0 0 29 2 *", "2026-11-30T00:00", "2024-02-29T00:00"),
        ("0 0 $ * *", "2026-11-30T12:00", "2026-11-30T00:00"),
        # Either day field begins with a star: both must match.
        ("0 0 */2 * MON", "2026-11-30T12:00", "2026-11-23T00:00"),
    ],
)
def test_the_previous_firing_is_the_one_after_which_no_other_comes(schedule: str, before: str, expected: str) -> None:
    moment = datetime.fromisoformat(before).replace(tzinfo=UTC)
    found = previous_utc(schedule, moment)
    assert found == datetime.fromisoformat(expected).replace(tzinfo=UTC)
    assert next_utc(schedule, found) >= moment


def test_seconds_have_no_previous_minute_and_naive_moments_are_refused() -> None:
    assert previous_utc("30 seconds", datetime(2026, 11, 30, tzinfo=UTC)) is None
    with pytest.raises(ValueError, match="aware"):
        previous_utc("* * * * *", datetime(2026, 11, 30))
    with pytest.raises(SumaclockError):
        previous_utc("0 9 * * 1#1", datetime(2026, 11, 30, tzinfo=UTC))
