"""Drift and sync: two assets, the job that makes them, and the nightly schedule."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection
from sumaclock_dagster.defs.assets import GROUP, LISTED, OWNERS
from sumaclock_dagster.defs.metadata import table, unbroken
from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock

if TYPE_CHECKING:
    from sumaclock_dagster.reconcile.drift import Drift
    from sumaclock_dagster.reconcile.sync import SyncReport


class SyncConfig(dg.Config):
    """How to sync."""

    dry_run: bool = Field(False, description="Only report what would be changed.")


@contextmanager
def both_sides(sumaclock: Sumaclock, purpose: str) -> Iterator[tuple[Connection, Clock]]:
    """A connection to the app database, and its clock. Raises SumaclockError when one of them can't be reached."""
    with (
        sumaclock.connect(purpose) as app,
        open_clock(app, sumaclock.settings.cron_url, sumaclock.settings.clock) as clock,
    ):
        yield app, clock


@dg.asset(
    io_manager_key=OWN_IO_KEY,
    group_name=GROUP,
    owners=OWNERS,
    kinds={"postgres", "table"},
    description="Makes pg_cron say what cron_jobs and the tasks say, and tells what it changed. Clock jobs of other "
    "databases and roles are never touched. Safe at any time, at most 1,000 changes a transaction; with dry_run in its "
    "config it only reports. The runners of one-off commands are kept as well. After a restore of either database, "
    "materialise it once.",
)
def sync_report(
    context: dg.AssetExecutionContext, config: SyncConfig, sumaclock: dg.ResourceParam[Sumaclock]
) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster knows it only bare
    from sumaclock_dagster.once.runners import place_runners
    from sumaclock_dagster.reconcile.sync import sync

    with both_sides(sumaclock, "sync") as (app, clock):
        report = sync(app, clock, dry_run=config.dry_run, say=context.log.info)
        runners = None if config.dry_run else place_runners(app, clock, sumaclock.settings.job_runners)
    return dg.MaterializeResult(
        metadata={
            **sync_numbers(report),
            "runners of one-off commands": len(runners.placed) + len(runners.removed) if runners else 0,
            "dry run": config.dry_run,
            "by kind": table(_by_kind(report), {"kind": "string", "found": "int", "mended": "int", "left": "int"}),
            "changes": table([_line(drift, "mended") for drift in report.mended[:LISTED]], DRIFT_COLUMNS),
            "left": table([_line(drift, _why_left(drift, config)) for drift in report.left[:LISTED]], DRIFT_COLUMNS),
        }
    )


@dg.asset(
    io_manager_key=OWN_IO_KEY,
    group_name=GROUP,
    owners=OWNERS,
    deps=[sync_report],
    kinds={"postgres", "table"},
    check_specs=[
        dg.AssetCheckSpec(
            "no_drift",
            asset="schedule_drift",
            description="No difference between jobs and clock jobs, but what was changed seconds ago and may be on its "
            "way. It blocks nothing; a sync mends what is ours to mend.",
        )
    ],
    description="Every difference between cron_jobs (and the tasks) and this database's clock jobs in pg_cron, with "
    "both sides' values. Changes nothing. A difference of a job that was changed seconds ago may be on its way.",
)
def schedule_drift(sumaclock: dg.ResourceParam[Sumaclock]) -> dg.MaterializeResult:  # type: ignore[type-arg]
    from sumaclock_dagster.reconcile.drift import DriftKind, count_by_kind, find_drift

    with both_sides(sumaclock, "drift") as (app, clock):
        found = find_drift(app, clock)
    counts = count_by_kind(found)
    return dg.MaterializeResult(
        metadata={
            "drift": len(found),
            "differences": table(
                [_line(drift, drift.left or "a sync mends it") for drift in found[:LISTED]], DRIFT_COLUMNS
            ),
            **{kind.value: counts.get(kind.value, 0) for kind in DriftKind},
        },
        check_results=[_no_drift(found)],
    )


def _no_drift(found: "Sequence[Drift]") -> dg.AssetCheckResult:
    from sumaclock_dagster.reconcile.drift import count_by_kind
    from sumaclock_dagster.reconcile.repair import is_young

    settled = [drift for drift in found if not is_young(drift)]
    left = next((f" {drift.left}" for drift in settled if drift.left), "")
    saw = f"{len(settled)} differences: {in_words(count_by_kind(settled))}." if settled else "No drift."
    remedy = " Materialise sync_report, or run `sumaclock drift --fix`." if any(not d.left for d in settled) else ""
    return dg.AssetCheckResult(
        check_name="no_drift",
        passed=not settled,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{saw}{remedy}{left}",
        metadata={"drift": len(settled)},
    )


sync_job = dg.define_asset_job(
    "sync",
    selection=dg.AssetSelection.assets(sync_report, schedule_drift),
    executor_def=dg.in_process_executor,
    description="Mends all drift between cron_jobs and pg_cron, then shows what remains.",
)


@dg.schedule(
    job=sync_job,
    name="sync",
    cron_schedule="41 2 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Once a night: mends all drift. Launches nothing when there is none that a sync could mend.",
)
def sync_schedule(sumaclock: dg.ResourceParam[Sumaclock]) -> dg.RunRequest | dg.SkipReason:
    from sumaclock_dagster.reconcile.drift import count_by_kind, find_drift
    from sumaclock_dagster.reconcile.repair import is_young

    with both_sides(sumaclock, "sync") as (app, clock):
        found = find_drift(app, clock)
    if any(not drift.left and not is_young(drift) for drift in found):
        return dg.RunRequest()
    rest = f" but what is on its way or not ours to mend: {in_words(count_by_kind(found))}" if found else ""
    return dg.SkipReason(f"No drift{rest}.")


def sync_numbers(report: "SyncReport") -> dict[str, int]:
    """What a sync found and did, for Dagster to plot."""
    return {
        "found": len(report.found),
        "mended": len(report.mended),
        "left over": len(report.left),
        "clock jobs placed": report.placed,
        "clock jobs removed": report.removed,
        "rows mended": report.rows,
    }


def in_words(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in counts.items())


SHORT = 24
DRIFT_COLUMNS = {
    "drift": "string",
    "wanted": "string",
    "found": "string",
    "outcome": "string",
    "job": "string",
    "pg_cron job": "int",
}


def _line(drift: "Drift", outcome: str) -> dict[str, Any]:
    texts = (_cell(text) for text in (drift.kind.value, drift.wanted, drift.found, outcome))
    values = (*texts, drift.subject.replace("-", ""), drift.jobid)
    return dict(zip(DRIFT_COLUMNS, values, strict=True))


def _cell(text: str) -> str:
    """Schedules and other short texts on one line."""
    return unbroken(text) if len(text) <= SHORT else text


def _why_left(drift: "Drift", config: SyncConfig) -> str:
    return drift.left or ("dry run" if config.dry_run else "left")


def _by_kind(report: "SyncReport") -> Sequence[dict[str, Any]]:
    from sumaclock_dagster.reconcile.drift import DriftKind, count_by_kind

    columns = [count_by_kind(drifts) for drifts in (report.found, report.mended, report.left)]
    return [
        {
            "kind": kind.value,
            **dict(zip(("found", "mended", "left"), (c.get(kind.value, 0) for c in columns), strict=True)),
        }
        for kind in DriftKind
        if any(kind.value in counts for counts in columns)
    ]
