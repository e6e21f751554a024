"""Sync: pg_cron is made to say what `cron_jobs` and the tasks say, and nothing of another database is touched.

Safe at any time and any number of times at once. What a killed sync left half-way is what the next one finds.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from psycopg.pq import TransactionStatus

from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.db import Connection
from sumaclock_dagster.garbage import rare_collections
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.reconcile.drift import find_drift
from sumaclock_dagster.reconcile.mender import Mender, Say
from sumaclock_dagster.reconcile.report import SyncReport

__all__ = ["BUSY", "SyncReport", "sync"]

ROUNDS = 3
BUSY = "Somebody was changing it during the sync, and leaves it right; otherwise sync again."


@rare_collections()
def sync(app: Connection, clock: Clock, *, dry_run: bool = False, say: Say = lambda _: None) -> SyncReport:
    """Mend all drift, at most 1,000 changes of `cron.job` a transaction; `say` hears of the progress.

    `app` must not be in a transaction. Raises SumaclockError when pg_cron can't be reached, or is used as another role.
    """
    if app.info.transaction_status != TransactionStatus.IDLE:
        raise SumaclockError("A sync commits batch by batch, so its connection must not be in a transaction.")
    found = find_drift(app, clock)
    report = SyncReport(dry_run, found, left=found)
    say(f"Drift: {', '.join(f'{number} {kind}' for kind, number in report.counts.items()) or 'none'}.")
    if dry_run or not found:
        return report
    with closing(Mender(app, clock, report, say)) as mender:
        for _ in range(ROUNDS):
            before = mender.changes
            if mender.mend([drift for drift in report.left if not drift.left]):
                report.left = [drift for drift in report.left if drift.left]
                break
            report.left = mender.explained(find_drift(app, clock))
            if mender.changes == before or not any(not drift.left for drift in report.left):
                break
    report.left = [replace(drift, left=drift.left or BUSY) for drift in report.left]
    return report
