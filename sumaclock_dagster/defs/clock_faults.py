"""The check clock_faults: what is wrong with the clock, by name, looked at twice a minute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dagster as dg

from sumaclock_dagster.defs.health import clock_health
from sumaclock_dagster.defs.metadata import table
from sumaclock_dagster.defs.resources import Sumaclock

if TYPE_CHECKING:
    from sumaclock_dagster.clock.faults import Fault

WELL = "none"
COLUMNS = {"fault": "string", "what is wrong": "string", "what to do": "string"}


@dg.asset_check(
    asset=clock_health,
    name="clock_faults",
    blocking=False,
    description="No known fault of the clock: launcher gone or crashing, logins refused, a missing privilege, a "
    "renamed database or role, a standby, clock jobs that fire elsewhere, a clock that was set back, no background "
    "workers, a change of cron.job that was missed, a full queue of pg_cron, no connection. Each is told by name with "
    "its remedy. It blocks nothing, and runs on its own also when clock_health cannot be made.",
)
def clock_faults(sumaclock: dg.ResourceParam[Sumaclock]) -> dg.AssetCheckResult:
    faults = look_for_faults(sumaclock)
    told = " ".join(f"{fault.kind.value}: {fault.problem} {fault.remedy}" for fault in faults)
    rows = [dict(zip(COLUMNS, (fault.kind.value, fault.problem, fault.remedy), strict=True)) for fault in faults]
    return dg.AssetCheckResult(
        passed=not faults,
        severity=dg.AssetCheckSeverity.WARN,
        description=told or "The clock shows no fault.",
        metadata={"faults": names_of(faults), "what they are": table(rows, COLUMNS)},
    )


check_clock = dg.define_asset_job(
    "check_clock",
    selection=dg.AssetSelection.checks(clock_faults),
    executor_def=dg.in_process_executor,
    description="Evaluates the check clock_faults.",
)


@dg.sensor(
    job=check_clock,
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Looks twice a minute for faults of the clock, and evaluates the check clock_faults when one comes or "
    "goes. Connects to the app database and pg_cron's, and works also where it can't.",
)
def faults_changed(
    context: dg.SensorEvaluationContext, sumaclock: dg.ResourceParam[Sumaclock]
) -> dg.RunRequest | dg.SkipReason:
    seen = names_of(look_for_faults(sumaclock))
    if context.cursor == seen:
        return dg.SkipReason(f"As told: {seen}.")
    context.update_cursor(seen)
    return dg.RunRequest()


def look_for_faults(sumaclock: Sumaclock) -> list[Fault]:
    from sumaclock_dagster.clock.diagnosis import find_faults

    return find_faults(sumaclock.settings.app_url, sumaclock.settings.cron_url)


def names_of(faults: Sequence[Fault]) -> str:
    return ", ".join(dict.fromkeys(fault.kind.value for fault in faults)) or WELL
