"""The claim batch grows while handlers are fast and shrinks back when they are not."""

from __future__ import annotations

from sumaclock_dagster.worker.pace import Pace


def test_it_grows_to_the_most_and_shrinks_back_to_the_first() -> None:
    pace = Pace(first=10, most=500, threads=10)
    assert (pace.batch, pace.hold, pace.fast) == (10, 10, False)
    sizes = []
    for _ in range(8):
        pace.ended(full=True, slowest_seconds=0.1)
        sizes.append(pace.batch)
    assert sizes == [10, 20, 40, 80, 160, 320, 500, 500]
    assert pace.hold == 1500
    for _ in range(8):
        pace.ended(full=True, slowest_seconds=0.25)
    assert (pace.batch, pace.hold, pace.fast) == (10, 10, False)


def test_an_empty_queue_is_no_reason_to_grow() -> None:
    pace = Pace(first=10, most=500, threads=10)
    pace.ended(full=False, slowest_seconds=0.01)
    assert (pace.batch, pace.fast) == (10, False)


def test_slow_handlers_hold_no_more_than_their_threads() -> None:
    assert Pace(first=10, most=500, threads=3).hold == 3
    assert Pace(first=500, most=500, threads=10).hold == 10
