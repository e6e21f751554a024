"""The database's clock, read from a worker whose own clock may be an hour off (rule 6)."""

from __future__ import annotations

from time import monotonic


class DatabaseClock:
    """Epoch seconds by the database's clock for this process's monotonic seconds, set anew at each heartbeat."""

    def __init__(self) -> None:
        self._offset = 0.0

    def set(self, epoch_seconds: float) -> float:
        """Returns by how many seconds that clock was moved since the last time."""
        before, self._offset = self._offset, epoch_seconds - monotonic()
        return self._offset - before

    def epoch(self, monotonic_seconds: float) -> float:
        return monotonic_seconds + self._offset
