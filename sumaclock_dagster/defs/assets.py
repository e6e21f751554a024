"""Assets and their checks: what the workers did, and what failed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from sumaclock_dagster.defs.metadata import CRON_RUNS, table, unbroken
from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock

HOURS = 24
WEEK_HOURS = 168
LISTED = 100
LINKED = 5
GROUP = "sumaclock"
OWNERS = ["team:sumaclock"]

cron_runs = dg.AssetSpec(
    key=CRON_RUNS,
    deps=["schedule_drift"],
    group_name=GROUP,
    owners=OWNERS,
    kinds={"postgres", "table"},
    description="The work orders: one row a firing, written by pg_cron and ended by a worker. Each worker observes "
    "here what it did every few seconds: counts by kind and outcome, lateness (handler start minus the minute that a "
    "run was meant for), and up to 100 firings. The full detail is in the table sumaclock.cron_runs.",
).with_io_manager_key(OWN_IO_KEY)


@dg.asset(
    io_manager_key=OWN_IO_KEY,
    group_name=GROUP,
    owners=OWNERS,
    deps=[CRON_RUNS],
    kinds={"postgres", "table"},
    check_specs=[
        dg.AssetCheckSpec(
            "no_failed_runs",
            asset="run_failures",
            description=f"No run failed within the last {HOURS} hours. It blocks nothing.",
        )
    ],
    description=f"The runs that failed within the last {HOURS} hours: table, counts by kind, picture by hour "
    "and kind; and a heat map of 7 days.",
)
def run_failures(sumaclock: dg.ResourceParam[Sumaclock]) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster knows it only bare
    # pandas and matplotlib take a second to import: too long for the processes of workers, which load this file too.
    from sumaclock_dagster.reports.failures import failures_by_hour, recent_failures
    from sumaclock_dagster.reports.pictures import draw_failure_heat, draw_failures

    with sumaclock.connect("report") as conn:
        failures = recent_failures(conn, HOURS, LISTED).to_dict("records")
        by_hour = failures_by_hour(conn, HOURS)
        week = failures_by_hour(conn, WEEK_HOURS)
    failed = int(by_hour.to_numpy().sum())
    return dg.MaterializeResult(
        metadata={
            "failed runs": failed,
            "by hour": _picture("Failed runs by hour and kind", draw_failures(by_hour)),
            "by kind and hour, 7 days": _picture("Failed runs of 7 days by kind and hour", draw_failure_heat(week)),
            **{f"failed runs of kind {kind}": int(by_hour[kind].sum()) for kind in by_hour.columns},
            **_links(failures),
            "newest failed runs": table([_row(failure) for failure in failures], FAILURE_COLUMNS),
        },
        check_results=[_no_failed_runs(failed)],
    )


@dg.asset_check(
    asset=CRON_RUNS,
    description="Every kind that an enabled job asks for, or that runs failed with, has a handler registered here.",
)
def every_kind_has_a_handler(sumaclock: dg.ResourceParam[Sumaclock]) -> dg.AssetCheckResult:
    from sumaclock_dagster.reports.failures import kinds_without_handler

    with sumaclock.connect("check") as conn:
        missing = kinds_without_handler(conn, sumaclock.handlers, HOURS)
    kinds = ", ".join(f"'{kind}'" for kind in missing["kind"])
    return dg.AssetCheckResult(
        passed=missing.empty,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"No handler for {kinds}. Their runs fail. Register the kind, name its registry in "
        "SUMACLOCK_HANDLERS and restart the code server; or pause the jobs; then `sumaclock runs retry`."
        if kinds
        else f"All kinds have a handler; registered are {', '.join(sorted(sumaclock.handlers)) or 'none'}.",
        metadata={
            "kinds without handler": len(missing),
            "kinds": table(
                missing.to_dict("records"),
                {"kind": "string", "enabled_jobs": "int", "failed_runs": "int"},
            ),
        },
    )


report_failures = dg.define_asset_job(
    "report_failures",
    selection=dg.AssetSelection.assets("run_failures")
    | dg.AssetSelection.checks(every_kind_has_a_handler)
    | dg.AssetSelection.checks_for_assets(run_failures),
    executor_def=dg.in_process_executor,
    description="Materialises run_failures and runs the checks.",
)

FAILURE_COLUMNS = {
    "run": "int",
    "kind": "string",
    "error": "string",
    "attempts": "int",
    "scheduled (UTC)": "string",
    "organization": "string",
    "user": "string",
    "Dagster run": "string",
}


def _row(failure: Mapping[Any, Any]) -> dict[str, Any]:
    values = (
        failure["run_id"],
        failure["kind"],
        failure["error"],
        failure["attempts"],
        unbroken(f"{failure['scheduled_at']:%d %b %Y %H:%M}"),
        failure["organization_id"],
        failure["user_id"],
        # The first eight digits, as the UI itself shows a Dagster run.
        str(failure["dagster_run_id"] or "")[:8],
    )
    return dict(zip(FAILURE_COLUMNS, values, strict=True))


def _picture(title: str, png: bytes) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{b64encode(png).decode()})")


def _links(failures: Sequence[Mapping[Any, Any]]) -> dict[str, dg.DagsterRunMetadataValue]:
    executed = [failure for failure in failures if failure["dagster_run_id"]]
    return {
        f"Dagster run of failed run {failure['run_id']}": dg.MetadataValue.dagster_run(str(failure["dagster_run_id"]))
        for failure in executed[:LINKED]
    }


def _no_failed_runs(failed: int) -> dg.AssetCheckResult:
    runs = "1 run" if failed == 1 else f"{failed or 'No'} runs"
    advice = (
        " Read the errors in this asset's table (`sumaclock runs show <run>` has the traceback), mend the cause, then "
        "`sumaclock runs retry <run>`."
    )
    return dg.AssetCheckResult(
        check_name="no_failed_runs",
        passed=failed == 0,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{runs} failed within the last {HOURS} hours.{advice if failed else ''}",
        metadata={"failed runs": failed},
    )
