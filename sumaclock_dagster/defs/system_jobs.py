"""The asset of the system jobs: what was executed last, what failed, and what is overdue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import dagster as dg

from sumaclock_dagster.defs.assets import GROUP, OWNERS
from sumaclock_dagster.defs.cursors import read_cursor
from sumaclock_dagster.defs.metadata import first_line, table, unbroken
from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock
from sumaclock_dagster.queue.system_jobs import SystemJobState, list_system_jobs

AGAIN_AFTER_SECONDS = 21_600


@dg.asset(
    io_manager_key=OWN_IO_KEY,
    group_name=GROUP,
    owners=OWNERS,
    kinds={"postgres", "table"},
    check_specs=[
        dg.AssetCheckSpec(
            "no_system_job_failed",
            asset="system_jobs",
            description="The last run of no system job failed. It blocks nothing.",
        ),
        dg.AssetCheckSpec(
            "no_system_job_overdue",
            asset="system_jobs",
            description="No system job is two periods and a minute late while a worker is there. It blocks nothing.",
        ),
    ],
    description="What workers do once in each period, whichever comes first: the system jobs registered in code. As of "
    "the moment when this was materialised.",
)
def system_jobs(sumaclock: dg.ResourceParam[Sumaclock]) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster knows it only bare
    states = _states(sumaclock, "report")
    return dg.MaterializeResult(
        metadata={
            "system jobs": len(states),
            "failed": len(failed(states)),
            "overdue": len(overdue(states)),
            "list": table([_row(state) for state in states], COLUMNS),
        },
        check_results=_checks(states),
    )


report_system_jobs = dg.define_asset_job(
    "report_system_jobs",
    selection=dg.AssetSelection.assets(system_jobs) | dg.AssetSelection.checks_for_assets(system_jobs),
    executor_def=dg.in_process_executor,
    description="Materialises system_jobs with its checks.",
)


@dg.sensor(
    job=report_system_jobs,
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Looks every minute at the system jobs. Renews the asset at once when one begins or ceases to fail or "
    "to be overdue, and every six hours while they are executed.",
)
def system_jobs_changed(
    context: dg.SensorEvaluationContext, sumaclock: dg.ResourceParam[Sumaclock]
) -> dg.RunRequest | dg.SkipReason:
    states = _states(sumaclock, "sensor")
    wrong = [sorted(failed(states)), sorted(overdue(states))]
    last = max((state.ended_at.timestamp() for state in states if state.ended_at), default=0.0)
    reported = read_cursor(context.cursor, wrong=list, last=float)
    if not states or (reported is None and not last and wrong == [[], []]):
        return dg.SkipReason("No system job has been executed.")
    if reported and reported["wrong"] == wrong and last - reported["last"] < AGAIN_AFTER_SECONDS:
        names = ", ".join(sorted({*wrong[0], *wrong[1]}))
        return dg.SkipReason(f"As reported: {names or 'no system job'} failed or is overdue.")
    context.update_cursor(json.dumps({"wrong": wrong, "last": last}))
    return dg.RunRequest()


COLUMNS = {
    "name": "string",
    "every (s)": "int",
    "period (UTC)": "string",
    "last run (UTC)": "string",
    "duration (s)": "float",
    "state": "string",
    "error": "string",
    "next (UTC)": "string",
}


def failed(states: Sequence[SystemJobState]) -> list[str]:
    """Whose last ended run failed."""
    return [state.name for state in states if state.error is not None]


def overdue(states: Sequence[SystemJobState]) -> list[str]:
    return [state.name for state in states if state.is_overdue]


def _states(sumaclock: Sumaclock, purpose: str) -> list[SystemJobState]:
    with sumaclock.connect(purpose) as conn:
        return list_system_jobs(conn, sumaclock.handlers.system_jobs.values())


def _row(state: SystemJobState) -> dict[str, Any]:
    values = (
        state.name,
        state.every_seconds,
        _moment(state.period),
        _moment(state.started_at),
        None if state.duration_seconds is None else round(state.duration_seconds, 3),
        state.word,
        first_line(state.error),
        _moment(state.next_period),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _moment(moment: datetime | None) -> str:
    return unbroken(f"{moment:%d %b %Y %H:%M:%S}") if moment else ""


def _checks(states: Sequence[SystemJobState]) -> list[dg.AssetCheckResult]:
    return [
        _none(
            "failed",
            failed(states),
            "The last run failed of",
            "The error is in this asset's table, and whole in sumaclock.system_job_runs. The next period tries again.",
        ),
        _none(
            "overdue",
            overdue(states),
            "Overdue",
            "A worker is there and does not begin them: see its log (Runs, job work), and whether workers run older "
            "code than this code server; terminating a worker is safe.",
        ),
    ]


def _none(state: str, names: Sequence[str], words: str, advice: str) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name=f"no_system_job_{state}",
        passed=not names,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{words}: {', '.join(names)}. {advice}" if names else f"No system job is {state}.",
        metadata={state: len(names)},
    )
