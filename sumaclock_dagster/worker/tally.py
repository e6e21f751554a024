"""What a worker did since its last report."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sumaclock_dagster.model import FiringLine, FlushReport

LINES_MAX = 100
LATENESS_MAX = 10_000


class Tally:
    """Collects executed runs; `take` hands them over once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._report = FlushReport()

    def add(self, lines: Iterable[FiringLine]) -> None:
        with self._lock:
            report = self._report
            for line in lines:
                key = (line.kind, line.outcome)
                report.counts[key] = report.counts.get(key, 0) + 1
                if len(report.lateness_seconds) < LATENESS_MAX:
                    report.lateness_seconds.append(line.lateness_seconds)
                if len(report.firings) < LINES_MAX:
                    report.firings.append(line)
                if line.outcome == "failed" and len(report.failures) < LINES_MAX:
                    report.failures.append(line)

    def take(self) -> FlushReport | None:
        """The report since the last call, or None when nothing was executed."""
        with self._lock:
            taken, self._report = self._report, FlushReport()
        return taken if taken.counts else None
