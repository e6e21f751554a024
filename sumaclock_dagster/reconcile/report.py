"""What a sync found and did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sumaclock_dagster.reconcile.drift import Drift, count_by_kind


@dataclass(slots=True)
class SyncReport:
    """What a sync found, and what it did.

    found: the drift at its start. left: what remains, each with the reason; the same as found in a dry run.
    placed, removed: changes of clock jobs; made anew counts as both. rows: rows of `cron_jobs` that were mended.
    """

    dry_run: bool
    found: list[Drift]
    left: list[Drift] = field(default_factory=list)
    placed: int = 0
    removed: int = 0
    rows: int = 0

    @property
    def counts(self) -> dict[str, int]:
        return count_by_kind(self.found)

    @property
    def mended(self) -> list[Drift]:
        """What was found and does not remain."""
        remaining = Counter((drift.subject, drift.kind) for drift in self.left)
        return [drift for drift in self.found if not remaining[(drift.subject, drift.kind)]]
