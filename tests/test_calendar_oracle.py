"""The calendar against an independent oracle that walks minute by minute, around the clock changes of hard zones."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sumaclock_dagster.calendar import LocalSchedule, next_occurrence
from sumaclock_dagster.model import SumaclockError
from tests.calendar_oracle import Window, zone

VECTORS = json.loads((Path(__file__).parent / "data" / "vectors.json").read_text("utf-8"))
HARD_ZONES = {
    "Africa/Cairo": (2014, 2026),
    "Africa/Casablanca": (2018, 2026),
    "America/Sao_Paulo": (2018,),
    "America/St_Johns": (2011, 2026),
    "Antarctica/Troll": (2026, 2027),
    "Asia/Beirut": (2026,),
    "Asia/Kathmandu": (1986, 2026),
    "Australia/Lord_Howe": (2026, 2027),
    "Europe/Dublin": (2026,),
    "Europe/Madrid": (2026, 2027),
    "Pacific/Apia": (2011,),
    "UTC": (2026,),
}
EARLIER = timedelta(days=2)
WINDOW_DAYS = 36
INSTANTS = 10


@cache
def changes() -> list[tuple[str, datetime]]:
    """Each clock change of the hard zones in their years, to the hour before it; a New Year where there is none."""
    found = []
    for name, years in HARD_ZONES.items():
        shown = zone(name)
        for year in years:
            hours = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in range(-48, 366 * 24)]
            offsets = [hour.astimezone(shown).utcoffset() for hour in hours]
            there = [hours[i] for i in range(len(hours) - 1) if offsets[i] != offsets[i + 1]]
            found += [(name, hour) for hour in there or [datetime(year, 1, 1, tzinfo=UTC)]]
    return found


@cache
def window(index: int) -> Window:
    name, change = changes()[index]
    return Window(name, change - EARLIER, WINDOW_DAYS)


def spans(low: int, high: int) -> st.SearchStrategy[str]:
    """`a-b` and `a-b/n`, never backwards, and more than one value under a step."""
    return st.tuples(st.integers(low, high - 1), st.integers(1, high - low), st.integers(1, 7)).map(
        lambda drawn: f"{drawn[0]}-{min(drawn[0] + drawn[1], high)}" + (f"/{drawn[2]}" if drawn[2] > 1 else "")
    )


def field(low: int, high: int, often: st.SearchStrategy[str], steps: list[int]) -> st.SearchStrategy[str]:
    term = st.one_of(often, st.integers(low, high).map(str), spans(low, high))
    return st.one_of(
        st.just("*"),
        st.sampled_from(steps).map(lambda step: f"*/{step}"),
        often,
        term,
        st.lists(term, min_size=2, max_size=4).map(",".join),
        st.lists(term, min_size=1, max_size=2).map(lambda terms: ",".join(["*/7", *terms])),
    )


def rarely(restricted: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.integers(0, 3).flatmap(lambda drawn: restricted if drawn == 3 else st.just("*"))


NAMED_DAY = st.sampled_from(["MON", "tue", "Wed", "THU", "fri", "SAT", "sun", "0", "5", "7"])
OF_MONTH = st.one_of(
    st.tuples(NAMED_DAY, st.integers(1, 5)).map(lambda drawn: f"{drawn[0]}#{drawn[1]}"),
    st.integers(0, 7).map(lambda day: f"{day}L"),
)
MINUTES = field(0, 59, st.sampled_from(["0", "30", "0,30", "15", "59", "0-59", "1"]), [1, 2, 7, 10, 15, 20, 30, 45, 59])
# Clocks change at night, also right before and at midnight.
HOURS = field(0, 23, st.sampled_from(["0", "1", "2", "3", "23", "0-3", "1,2", "22-23"]), [1, 2, 3, 5, 6, 12, 23])
DATES = rarely(field(1, 31, st.sampled_from(["L", "LW", "1", "29", "30", "31", "1-7", "L,15", "1-31"]), [1, 2, 7, 31]))
MONTHS = rarely(field(1, 12, st.sampled_from(["mar", "OCT", "3,4,10,11", "DEC", "JAN-JUN"]), [1, 2, 3, 12]))
WEEKDAYS = rarely(field(0, 7, st.one_of(NAMED_DAY, OF_MONTH, st.just("MON-FRI")), [1, 2, 5, 7]))
CRONS = st.tuples(MINUTES, HOURS, DATES, MONTHS, WEEKDAYS).map(" ".join)
NEAR = st.integers(-4 * 3600, 6 * 3600)
FAR = st.integers(-40 * 3600, 20 * 86400)
SECONDS_FROM_CHANGE = st.one_of(NEAR, NEAR, NEAR.map(lambda second: second // 60 * 60), FAR)


def test_the_oracle_knows_the_vectors() -> None:
    """It is as independent of the vectors as of the calendar, so that they vouch for it."""
    checked = 0
    for vector in VECTORS:
        after = datetime.fromisoformat(vector["after"])
        expected = [datetime.fromisoformat(text) for text in vector["next"]]
        days = (expected[-1] - after).days + 5
        if days < 60:
            seen = Window(vector["tz"], (after - EARLIER).replace(second=0), days)
            firing = seen.firing(vector["cron"])
            for occurrence in expected:
                after = seen.next_firing(firing, after)
                assert after == occurrence, vector
            checked += 1
    assert checked > 30


def test_calendar_agrees_with_the_oracle() -> None:
    triples: set[tuple[str, str, datetime]] = set()
    zones_seen: set[str] = set()
    none_in_window = 0

    @settings(max_examples=3000, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(
        index=st.integers(0, len(changes()) - 1),
        cron=CRONS,
        seconds=st.lists(SECONDS_FROM_CHANGE, min_size=INSTANTS, max_size=INSTANTS, unique=True),
    )
    def compare(index: int, cron: str, seconds: list[int]) -> None:
        nonlocal none_in_window
        name, change = changes()[index]
        seen = window(index)
        firing = seen.firing(cron)
        schedule = LocalSchedule(cron=cron, timezone=name)
        for second in seconds:
            after = change + timedelta(seconds=second)
            expected = seen.next_firing(firing, after)
            got = following(schedule, after)
            if expected is None:
                none_in_window += 1
                assert got is None or got >= seen.end, (cron, name, after, got)
            else:
                assert got == expected, (cron, name, after)
            triples.add((cron, name, after))
        zones_seen.add(name)

    compare()
    assert len(triples) >= 20_000
    assert none_in_window < len(triples) / 3
    assert zones_seen == set(HARD_ZONES)


def following(schedule: LocalSchedule, after: datetime) -> datetime | None:
    """None also for a date that no month of the cron has: the oracle must not find it either."""
    try:
        return next_occurrence(schedule, after)
    except SumaclockError as refusal:
        if "would never fire" in str(refusal):
            return None
        raise
