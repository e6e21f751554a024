"""How many runs a claim takes: few while handlers are slow, many while they are fast."""

from __future__ import annotations

FAST_SECONDS = 0.25


class Pace:
    """Doubles the batch while whole batches end within 250 ms of their claim, halves it when they don't.

    A worker with slow handlers holds no more runs than it has threads, so that waiting runs stay claimable by others;
    one with fast handlers holds three batches: one is claimed while one is executed and one's outcomes are written.
    """

    def __init__(self, first: int, most: int, threads: int) -> None:
        self._first = first
        self._most = max(first, most)
        self._threads = threads
        self.batch = first
        self.fast = False

    @property
    def hold(self) -> int:
        """The most runs that the worker holds at once."""
        return 3 * self.batch if self.fast else self._threads

    def slowed(self) -> None:
        """Learn that runs waited in vain for a thread."""
        self.batch, self.fast = self._first, False

    def ended(self, full: bool, slowest_seconds: float) -> None:
        """Learn that a claim's runs have all ended, the last of them `slowest_seconds` after the claim. `full`: the
        claim got as many as it asked for."""
        if slowest_seconds >= FAST_SECONDS:
            self.batch = max(self._first, self.batch // 2)
            self.fast = self.fast and self.batch > self._first
        elif full and self.fast:
            self.batch = min(self._most, self.batch * 2)
        elif full:
            self.fast = True
