"""What one `next_occurrence` costs, beside cronsim alone walking aware datetimes (which is wrong in odd zones).

    python benchmarks/next_occurrence.py [ROUNDS]

Both walk the same instants in turn, so that a busy machine slows both. Prints the median of the rounds, in
microseconds a call, and the ratio. Schedules were read before, as those of a running system have been.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from cronsim import CronSim

from sumaclock_dagster.calendar import next_occurrence, parse_schedule
from sumaclock_dagster.calendar.zones import zone_named

CRONS = {
    "weekly": "0 9 * * MON",
    "daily": "30 7 * * *",
    "every quarter": "*/15 * * * *",
    "last Friday": "0 18 * * 5L",
    "leap day": "0 9 29 2 *",
}
ZONE = "Europe/Madrid"
INSTANTS = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=23.7 * step) for step in range(370)]


def microseconds(call: Callable[[datetime], object], instants: list[datetime]) -> float:
    start = time.perf_counter()
    for instant in instants:
        call(instant)
    return (time.perf_counter() - start) * 1e6 / len(instants)


def measure(cron: str, rounds: int) -> tuple[float, float]:
    schedule = parse_schedule(cron, timezone=ZONE)
    zone = zone_named(ZONE)
    local = [instant.astimezone(zone) for instant in INSTANTS]
    ours, alone = [], []
    for _ in range(rounds):
        ours.append(microseconds(lambda after: next_occurrence(schedule, after), INSTANTS))
        alone.append(microseconds(lambda after: next(CronSim(cron, after)), local))
    return statistics.median(ours), statistics.median(alone)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print(f"{'schedule':<15} {'ours µs':>8} {'cronsim µs':>11} {'ratio':>6}")
    for name, cron in CRONS.items():
        ours, alone = measure(cron, rounds)
        print(f"{name:<15} {ours:>8.1f} {alone:>11.1f} {ours / alone:>6.2f}")


if __name__ == "__main__":
    main()
