"""The runs that a worker holds, from their claim until their outcome is in the database."""

from __future__ import annotations

from dataclasses import dataclass, field

from sumaclock_dagster.handlers import CancelFlag
from sumaclock_dagster.model import Outcome
from sumaclock_dagster.queue.claims import Claimed


@dataclass(slots=True, eq=False)
class Batch:
    """One claim's runs: whether it got as many as it asked for, how many have not ended, and when its answer came
    (monotonic seconds)."""

    full: bool
    left: int
    claimed: float


@dataclass(slots=True, eq=False)
class HeldRun:
    """A claimed run in this worker. Times are monotonic seconds; `outcome` is set once, by whoever ends the run;
    `result` is the JSON text of what the handler returned."""

    run: Claimed
    batch: Batch
    started: float = 0.0
    ended: float = 0.0
    deadline: float | None = None
    cancelled: CancelFlag = field(default_factory=CancelFlag)
    outcome: Outcome | None = None
    result: str | None = None
    raised: bool = False


class HeldRuns:
    """All held runs. They are known by their claim, not by their run's id: a run may come back to a worker that lost
    it, while the handler of the lost claim is still at work. Plain set operations are atomic, so no run waits for a
    lock.

    `end` gives a run to exactly one caller: the thread that executed it, or the keeper when its time is over.
    """

    def __init__(self) -> None:
        self._open: set[HeldRun] = set()
        self._all: set[HeldRun] = set()

    def add(self, held: HeldRun) -> None:
        self._all.add(held)
        self._open.add(held)

    def end(self, held: HeldRun) -> bool:
        """True for the one caller that may say how the run ended."""
        try:
            self._open.remove(held)
        except KeyError:
            return False
        return True

    def is_open(self, held: HeldRun) -> bool:
        return held in self._open

    def forget(self, held: HeldRun) -> None:
        """Its outcome is written, it was given back, or the handler of its lost claim is over."""
        self._all.discard(held)

    def open(self) -> list[HeldRun]:
        return list(self._open.copy())

    def claims(self) -> list[tuple[int, int]]:
        """The (run id, attempt) of every held run."""
        return [(held.run.id, held.run.attempt) for held in self._all.copy()]

    @property
    def open_count(self) -> int:
        return len(self._open)

    def __len__(self) -> int:
        return len(self._all)
