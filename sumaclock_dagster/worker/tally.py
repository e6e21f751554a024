"""What a worker did since its last report."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sumaclock_dagster.model import FiringLine, FlushReport

LINES_MAX = 100
LATENESS_MAX = 10_000


class Tally:
    """Collects executed runs; `take` hands them over once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._report = FlushReport()

    def add(self, kind: str, outcome: str, lateness_seconds: float, line: Callable[[], FiringLine]) -> None:
        """Count one executed run. `line` is asked for what reports list, while they have room."""
        with self._lock:
            report = self._report
            key = (kind, outcome)
            report.counts[key] = report.counts.get(key, 0) + 1
            if len(report.lateness_seconds) < LATENESS_MAX:
                report.lateness_seconds.append(lateness_seconds)
            listed = len(report.firings) < LINES_MAX
            failed = outcome == "failed" and len(report.failures) < LINES_MAX
            if listed or failed:
                one = line()
                if listed:
                    report.firings.append(one)
                if failed:
                    report.failures.append(one)

    def take(self) -> FlushReport | None:
        """The report since the last call, or None when nothing was executed."""
        with self._lock:
            taken, self._report = self._report, FlushReport()
        return taken if taken.counts else None
