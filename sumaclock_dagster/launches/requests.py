"""Asking for a Dagster run, and handing the run of the queue over to it. In the caller's transaction."""

from __future__ import annotations

import json
from uuid import UUID

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.launches.target import Target
from sumaclock_dagster.launches.templates import Occurrence
from sumaclock_dagster.model import SumaclockError

TARGET_MAX_BYTES = 1_000_000


def request_launch(
    conn: Connection, occurrence: Occurrence, job_id: UUID, target: Target, idempotency_key: str, *, anew: bool
) -> bool:
    """Ask for one Dagster run of `target`, its templates filled in. False where the run, or the occurrence,
    has one under way already. anew: an outcome of an earlier one that the run has not taken counts no more.

    Raises SumaclockError for a target of over a million bytes.
    """
    text = json.dumps(target.as_payload(), ensure_ascii=False)
    if len(text.encode()) > TARGET_MAX_BYTES:
        raise SumaclockError(
            "The target has over 1,000,000 bytes with its templates filled in. Shorten its run_config."
        )
    if anew:
        conn.execute(query("spend_launches_of_run"), {"run": occurrence.run_id})
    values = {
        "run": occurrence.run_id,
        "job": job_id,
        "task": occurrence.task_id,
        "scheduled_for": occurrence.scheduled_for,
        "key": idempotency_key,
        "organization": occurrence.organization_id,
        "user": occurrence.user_id,
        "target": text,
    }
    return conn.execute(query("insert_launch"), values).fetchone() is not None


def hand_over(conn: Connection, run_id: int, attempt: int) -> bool:
    """From now on the run's Dagster run says how it ends; where it has said so already, the run ends here. Changes
    nothing for a claim that was lost, and for a run that was handed over before. False where no launch is its own."""
    return conn.execute(query("hand_over_run"), {"run": run_id, "attempt": attempt}).fetchone() is not None
