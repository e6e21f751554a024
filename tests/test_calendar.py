"""Local schedules on the UTC line: the vectors, the rules around clock changes, and where schedules end."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from pathlib import Path

import pytest
import tzdata

from sumaclock_dagster.calendar import (
    LocalSchedule,
    next_occurrence,
    occurrences,
    parse_schedule,
    pg_cron_for,
    zone_data_version,
)
from sumaclock_dagster.calendar.zones import zone_named
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.raw_schedule import ClockFeatures, check, next_utc

VECTORS = json.loads((Path(__file__).parent / "data" / "vectors.json").read_text("utf-8"))
OLD = ClockFeatures(seconds=False, last_day=False)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def first(cron: str, after: str, count: int, timezone: str = "Europe/Madrid") -> list[str]:
    found = islice(occurrences(parse_schedule(cron, timezone=timezone), utc(after)), count)
    return [occurrence.strftime("%Y-%m-%d %H:%M") for occurrence in found]


def test_there_are_48_vectors() -> None:
    assert len(VECTORS) == 48


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['cron']} {vector['tz']} {vector['after']}")
def test_vector(vector: dict[str, object]) -> None:
    schedule = parse_schedule(str(vector["cron"]), timezone=str(vector["tz"]))
    expected = [datetime.fromisoformat(text) for text in vector["next"]]  # type: ignore[attr-defined]
    after = datetime.fromisoformat(str(vector["after"]))
    assert list(islice(occurrences(schedule, after), len(expected))) == expected, vector["why"]


def test_mondays_at_nine_stay_at_nine_through_both_changes_of_2026() -> None:
    schedule = parse_schedule("0 9 * * MON")
    found = list(islice(occurrences(schedule, utc("2025-12-31 23:00")), 52))
    local = [occurrence.astimezone(zone_named("Europe/Madrid")) for occurrence in found]
    assert {(moment.isoweekday(), moment.hour, moment.minute) for moment in local} == {(1, 9, 0)}
    assert [moment.date() - local[0].date() for moment in local] == [timedelta(weeks=week) for week in range(52)]
    hours_in_utc = [occurrence.hour for occurrence in found]
    # 12 Mondays before 29 March, 30 until 25 October.
    assert hours_in_utc == [8] * 12 + [7] * 30 + [8] * 10


def test_a_time_in_the_gap_comes_right_after_it() -> None:
    assert first("30 2 * * *", "2026-03-28 12:00", 2) == ["2026-03-29 01:00", "2026-03-30 00:30"]


def test_a_time_that_comes_twice_counts_the_first_time() -> None:
    assert first("30 2 * * *", "2026-10-24 12:00", 2) == ["2026-10-25 00:30", "2026-10-26 01:30"]


def test_times_in_the_gap_and_the_minute_after_it_are_one_occurrence() -> None:
    assert first("0,15,30 2,3 * * *", "2026-03-29 00:00", 4) == [
        *("2026-03-29 01:00", "2026-03-29 01:15", "2026-03-29 01:30"),
        "2026-03-30 00:00",
    ]


def test_every_quarter_of_the_repeated_hour_counts_even_on_that_day_alone() -> None:
    """Written so that the wall clock's next match lies a year ahead while the hour is still repeated."""
    assert first("*/30 2 25 10 *", "2026-10-25 00:00", 4) == [
        *("2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30"),
        "2027-10-25 00:00",
    ]


@pytest.mark.parametrize("second", [0, 1, 59])
def test_strictly_after_whatever_the_second(second: int) -> None:
    nine = utc("2026-06-01 07:00")
    schedule = parse_schedule("0 9 * * *")
    assert next_occurrence(schedule, nine - timedelta(seconds=60 - second)) == nine
    assert next_occurrence(schedule, nine + timedelta(seconds=second)) == nine + timedelta(days=1)
    assert next_occurrence(schedule, nine - timedelta(microseconds=1)) == nine
    assert next_occurrence(schedule, nine + timedelta(microseconds=1)) == nine + timedelta(days=1)


def test_after_may_be_in_any_zone_and_the_answer_is_in_utc() -> None:
    schedule = parse_schedule("0 9 * * *")
    after = datetime(2026, 6, 1, 3, 0, tzinfo=timezone(timedelta(hours=-4)))
    found = next_occurrence(schedule, after)
    assert found == utc("2026-06-02 07:00")
    assert found.tzinfo is UTC


def test_a_naive_after_is_refused() -> None:
    for schedule in (parse_schedule("0 9 * * *"), parse_schedule(instant=utc("2026-06-01 07:00"))):
        with pytest.raises(ValueError, match="aware"):
            next_occurrence(schedule, datetime(2026, 6, 1))


def test_leap_days_years_ends_and_far_away() -> None:
    assert first("0 9 29 2 *", "2026-03-01 00:00", 2) == ["2028-02-29 08:00", "2032-02-29 08:00"]
    assert first("59 23 31 12 *", "2026-06-01 00:00", 2) == ["2026-12-31 22:59", "2027-12-31 22:59"]
    assert first("0 0 1 1 *", "2026-06-01 00:00", 1) == ["2026-12-31 23:00"]
    # Sundays on a 29 February: 40 years apart, since 2100 has none.
    assert first("0 9 29 2 */7", "2088-02-01 00:00", 2) == ["2088-02-29 08:00", "2128-02-29 08:00"]


def test_an_instant_comes_once() -> None:
    instant = utc("2028-02-29 23:59")
    schedule = parse_schedule(instant=instant)
    assert list(occurrences(schedule, utc("2026-01-01 00:00"))) == [instant]
    assert next_occurrence(schedule, instant - timedelta(microseconds=1)) == instant
    assert next_occurrence(schedule, instant) is None
    assert next_occurrence(schedule, instant + timedelta(days=1)) is None


def test_a_schedule_that_only_ever_falls_into_gaps_has_no_next() -> None:
    """Egypt's clocks skip the midnight of April's last Friday, and a wildcard makes nothing up for a gap."""
    schedule = parse_schedule("*/30 0 * 4 5L", timezone="Africa/Cairo")
    assert next_occurrence(schedule, utc("2026-01-01 00:00")) is None
    assert list(occurrences(schedule, utc("2026-01-01 00:00"))) == []


def test_the_end_of_time_is_no_error() -> None:
    schedule = parse_schedule("0 9 * * MON")
    assert next_occurrence(schedule, utc("9999-12-31 23:59")) is None
    assert next_occurrence(schedule, utc("9890-01-01 00:00")) is not None


def test_what_no_longer_resolves_is_refused_with_its_reason() -> None:
    with pytest.raises(SumaclockError, match="timezone 'Europe/Atlantis'"):
        next_occurrence(LocalSchedule(cron="0 9 * * MON", timezone="Europe/Atlantis"), utc("2026-01-01 00:00"))
    with pytest.raises(SumaclockError, match="FRI-MON"):
        next_occurrence(LocalSchedule(cron="0 9 * * FRI-MON"), utc("2026-01-01 00:00"))


def test_threads_share_what_was_read_and_not_where_they_are() -> None:
    schedule = parse_schedule("*/5 1-3 * * *")
    starts = [utc("2026-10-24 00:00") + timedelta(minutes=37 * step) for step in range(400)]
    alone = [next_occurrence(schedule, start) for start in starts]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda start: next_occurrence(schedule, start), starts * 4))
    assert together == alone * 4


def test_zone_data_is_the_packages_and_not_the_systems(tmp_path: Path) -> None:
    """A system that thinks Madrid is in UTC changes nothing, nor does importing the calendar change zoneinfo."""
    (tmp_path / "Europe").mkdir()
    utc_data = Path(tzdata.__file__).parent / "zoneinfo" / "UTC"
    (tmp_path / "Europe" / "Madrid").write_bytes(utc_data.read_bytes())
    program = f"""
        import zoneinfo
        from datetime import UTC, datetime
        from sumaclock_dagster.calendar import next_occurrence, parse_schedule
        print(next_occurrence(parse_schedule("0 9 * * *"), datetime(2026, 6, 1, tzinfo=UTC)).isoformat())
        print(datetime(2026, 6, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Madrid")).utcoffset())
        print(zoneinfo.TZPATH == ({str(tmp_path)!r},))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={"PYTHONTZPATH": str(tmp_path), "TZ": "Asia/Tokyo"},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["2026-06-01T07:00:00+00:00", "0:00:00", "True"]
    assert zone_data_version() == tzdata.IANA_VERSION


@pytest.mark.parametrize(
    ("instant", "raw"),
    [
        ("2026-12-01T09:00:00+01:00", "0 8 1 12 *"),
        ("2028-02-29T23:59:00+00:00", "59 23 29 2 *"),
        ("2027-01-01T00:30:00+01:00", "30 23 31 12 *"),
        ("2031-07-04T00:00:00-03:30", "30 3 4 7 *"),
    ],
)
def test_one_instant_for_pg_cron(instant: str, raw: str) -> None:
    moment = datetime.fromisoformat(instant)
    assert pg_cron_for(moment) == raw
    check(raw, OLD)
    assert next_utc(raw, moment - timedelta(minutes=1)) == moment


def test_pg_cron_knows_no_year_so_a_far_instant_comes_too_early() -> None:
    """Why a firing before its time must run nothing."""
    far = utc("2031-07-04 00:00")
    assert next_utc(pg_cron_for(far), utc("2026-11-30 00:00")) == utc("2027-07-04 00:00")


@pytest.mark.parametrize("wrong", [datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)])
def test_pg_cron_for_needs_an_aware_whole_minute(wrong: datetime) -> None:
    with pytest.raises(ValueError, match="instant"):
        pg_cron_for(wrong)
