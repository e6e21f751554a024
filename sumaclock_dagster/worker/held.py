"""The runs that a worker holds, from their claim until their outcome is in the database."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event

from sumaclock_dagster.model import Outcome
from sumaclock_dagster.queue.claims import Claimed


@dataclass(slots=True, eq=False)
class Batch:
    """One claim's runs: how many have not ended, and when the claim's answer came (monotonic seconds)."""

    size: int
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
    cancelled: Event | None = None
    outcome: Outcome | None = None
    result: str | None = None
    raised: bool = False


class HeldRuns:
    """All held runs by id. Plain dict operations are atomic, so that no run waits for a lock.

    `end` gives a run to exactly one caller: the thread that executed it, or the keeper when its time is over.
    """

    def __init__(self) -> None:
        self._open: dict[int, HeldRun] = {}
        self._all: dict[int, HeldRun] = {}

    def add(self, held: HeldRun) -> None:
        self._all[held.run.id] = held
        self._open[held.run.id] = held

    def end(self, held: HeldRun) -> bool:
        """True for the one caller that may say how the run ended."""
        return self._open.pop(held.run.id, None) is held

    def forget(self, held: HeldRun) -> None:
        """Its outcome is written, or its claim was lost or given back."""
        self._all.pop(held.run.id, None)

    def open(self) -> list[HeldRun]:
        return list(self._open.copy().values())

    def ids(self) -> list[int]:
        return list(self._all.copy())

    @property
    def open_count(self) -> int:
        return len(self._open)

    def __len__(self) -> int:
        return len(self._all)
