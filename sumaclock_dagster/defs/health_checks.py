"""Checks of the asset clock_health: each says what it saw, and what to do where that is not well. None blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from sumaclock_dagster.db import Connection
from sumaclock_dagster.migrate import load_migrations, pending
from sumaclock_dagster.model import SumaclockError

if TYPE_CHECKING:
    from sumaclock_dagster.reports.clock_health import ClockLife, OldestTransaction, Pulse

ASSET = "clock_health"
CHECKS = {
    "no_run_pending_long": "No due run has waited for a worker for over a minute.",
    "no_task_late": "No task is late by over 5 minutes.",
    "migrations_current": "The database has exactly the migrations of this code.",
    "no_long_transaction": "No transaction in the cluster has been open for over an hour.",
    "clock_alive": "pg_cron's launcher is there, and the newest firing is no older than the schedules of enabled jobs "
    "and tasks say. Passes when nothing is scheduled.",
}
HEALTH_CHECKS = [
    dg.AssetCheckSpec(name, asset=ASSET, description=f"{holds} It blocks nothing.") for name, holds in CHECKS.items()
]


def check_health(
    conn: Connection, pulse: Pulse, life: ClockLife, oldest: OldestTransaction | None
) -> list[dg.AssetCheckResult]:
    """One result for each of CHECKS."""
    return [
        _no_run_pending_long(pulse),
        _no_task_late(pulse),
        _migrations_current(conn),
        _no_long_transaction(oldest),
        _clock_alive(life),
    ]


def _no_run_pending_long(pulse: Pulse) -> dg.AssetCheckResult:
    from sumaclock_dagster.reports.clock_health import PENDING_SECONDS

    waited = pulse.oldest_pending_seconds or 0.0
    saw = f"{pulse.pending} due runs wait, the oldest for {waited:.0f} s; {pulse.live_workers} workers live."
    remedy = (
        "Is the sensor pending_runs on, and Dagster's daemon up? Then look at the newest Dagster run of the job work."
        if pulse.live_workers == 0
        else "Handlers take longer than runs come: raise SUMACLOCK_MAX_WORKERS or SUMACLOCK_HANDLER_THREADS."
    )
    return _result("no_run_pending_long", waited <= PENDING_SECONDS, saw, remedy, {"oldest pending run (s)": waited})


def _no_task_late(pulse: Pulse) -> dg.AssetCheckResult:
    late = pulse.latest_task_seconds or 0.0
    saw = f"{pulse.late_tasks} tasks are late by over 5 minutes" + (f", one by {late:.0f} s." if late else ".")
    remedy = (
        "If runs are pending, workers are missing. Else the schedule heartbeat, which fires late tasks, must be on: "
        "look at its last Dagster run; `sumaclock drift` and `sumaclock doctor` say what is wrong with the clock."
    )
    return _result("no_task_late", pulse.late_tasks == 0, saw, remedy, {"late tasks": pulse.late_tasks})


def _migrations_current(conn: Connection) -> dg.AssetCheckResult:
    try:
        missing = [migration.name for migration in pending(conn, load_migrations())]
    except SumaclockError as error:
        return _result("migrations_current", False, str(error), "", {})
    saw = f"Not applied yet: {', '.join(missing)}." if missing else "All migrations are applied."
    return _result("migrations_current", not missing, saw, "Run `sumaclock migrate`.", {"pending": len(missing)})


def _no_long_transaction(oldest: OldestTransaction | None) -> dg.AssetCheckResult:
    from sumaclock_dagster.reports.clock_health import OLD_TRANSACTION_SECONDS

    seconds = oldest.seconds if oldest else 0.0
    saw = f"The oldest transaction is {seconds:.0f} s old ({oldest.who})." if oldest else "No open transaction."
    remedy = (
        "Vacuum cannot clean the queue meanwhile, and each claim gets slower. End it, or have its application commit, "
        "and set idle_in_transaction_session_timeout."
    )
    metadata = {"oldest transaction (s)": round(seconds, 1)}
    return _result("no_long_transaction", seconds < OLD_TRANSACTION_SECONDS, saw, remedy, metadata)


def _clock_alive(life: ClockLife) -> dg.AssetCheckResult:
    last = f"{life.last_firing:%Y-%m-%d %H:%M} UTC" if life.last_firing else "none"
    if not life.launcher:
        saw = f"pg_cron's launcher is gone, so nothing fires. Last firing: {last}."
    elif life.expected is None:
        saw = f"Nothing is scheduled that should have fired yet. Last firing: {last}."
    else:
        saw = f"The clock should have fired at {life.expected:%Y-%m-%d %H:%M} UTC. Last firing: {last}."
    remedy = (
        "`sumaclock doctor` names the cause. Often: a row in cron.job whose role was dropped (a superuser deletes it), "
        "logins of pg_cron refused, or drift (`sumaclock drift --fix`); a terminated launcher of pg_cron 1.4 comes "
        "back with a restart of the server. What was missed is fired once by the heartbeat."
    )
    return _result("clock_alive", life.is_alive, saw, remedy, {"last firing": last})


def _result(name: str, passed: bool, saw: str, remedy: str, metadata: Mapping[str, Any]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name=name,
        passed=passed,
        severity=dg.AssetCheckSeverity.WARN,
        description=saw if passed else f"{saw} {remedy}".strip(),
        metadata=metadata,
    )
