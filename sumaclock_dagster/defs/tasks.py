"""Assets about tasks, and the sensor that renews them."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from sumaclock_dagster.defs.assets import GROUP, LINKED, LISTED, OWNERS
from sumaclock_dagster.defs.metadata import CRON_RUNS, table, unbroken
from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock

if TYPE_CHECKING:
    from sumaclock_dagster.reports.task_changes import TasksSeen


@dg.asset(
    io_manager_key=OWN_IO_KEY,
    group_name=GROUP,
    owners=OWNERS,
    deps=[CRON_RUNS],
    kinds={"postgres", "table"},
    description="The task runs of the last 7 days: by organisation, outcome and lateness (start minus the minute of "
    "the occurrence; those that somebody asked for by hand have none), and the newest one by one. All of them are in "
    "the table sumaclock.ai_task_runs.",
)
def task_runs(sumaclock: dg.ResourceParam[Sumaclock]) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster knows it only bare
    # As in assets.py: too long to import for the processes of workers.
    from sumaclock_dagster.reports import task_runs as report
    from sumaclock_dagster.reports.task_pictures import draw_task_runs

    with sumaclock.connect("report") as conn:
        totals = report.totals(conn).dropna()
        by_organization = report.by_organization(conn)
        late = report.by_lateness(conn)
        newest = report.recent(conn, limit=LISTED).to_dict("records")
    return dg.MaterializeResult(
        metadata={
            "by organisation and lateness": _picture("Task runs", draw_task_runs(by_organization, late)),
            **{
                TOTALS[str(name)]: round(number, 3) if "lateness" in str(name) else int(number)
                for name, number in totals.items()
            },
            "by organisation": table(
                [_organization(row) for row in by_organization.to_dict("records")], ORGANIZATION_COLUMNS
            ),
            **{
                f"Dagster run of failed task run {run['task_run_id']}": dg.MetadataValue.dagster_run(
                    str(run["dagster_run_id"])
                )
                for run in [run for run in newest if run["status"] == "failed" and run["dagster_run_id"]][:LINKED]
            },
            "newest task runs": table([_task_run(run) for run in newest], TASK_RUN_COLUMNS),
        }
    )


core_api_jobs = dg.AssetSpec(
    key="core_api_jobs",
    deps=["task_runs"],
    group_name=GROUP,
    owners=OWNERS,
    kinds={"postgres", "table"},
    description="What task runs asked core-api to do: one row a request, written with the effect of its task run and "
    "sent by runs of the kind deliver_core_api, which cron_runs shows. Never materialised; the "
    "rows are in the table sumaclock.core_api_jobs, failed deliveries in run_failures.",
).with_io_manager_key(OWN_IO_KEY)


@dg.asset(
    io_manager_key=OWN_IO_KEY,
    group_name=GROUP,
    owners=OWNERS,
    deps=[CRON_RUNS],
    kinds={"postgres", "table"},
    description="When tasks are going to fire: the next firings in the owner's local time and in UTC, and pictures of "
    "the next 24 hours and the next 7 days. As of the moment when this was materialised.",
)
def upcoming_firings(sumaclock: dg.ResourceParam[Sumaclock]) -> dg.MaterializeResult:  # type: ignore[type-arg]
    from sumaclock_dagster.reports import upcoming as report
    from sumaclock_dagster.reports.task_pictures import draw_timeline

    with sumaclock.connect("report") as conn:
        firings = report.next_firings(conn, LISTED).to_dict("records")
        by_status = report.tasks_by_status(conn)
        day, week = report.timeline(conn, 24, 1), report.timeline(conn, 24 * report.DAYS, 6)
    return dg.MaterializeResult(
        metadata={
            "next 24 hours": _picture("Firings of the next 24 hours", draw_timeline(day)),
            "next 7 days": _picture("Firings of the next 7 days", draw_timeline(week)),
            "firings in 24 h": int(day.per_bar.sum()),
            "firings in 7 days": int(week.per_bar.sum()),
            **{f"{status} tasks": by_status.get(status, 0) for status in ("active", "paused", "failed", "done")},
            "next firings": table([_firing(firing) for firing in firings], FIRING_COLUMNS),
        }
    )


report_tasks = dg.define_asset_job(
    "report_tasks",
    selection=dg.AssetSelection.assets("task_runs", "upcoming_firings"),
    executor_def=dg.in_process_executor,
    description="Materialises task_runs and upcoming_firings.",
)


@dg.sensor(
    job=report_tasks,
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Renews the assets task_runs and upcoming_firings: when there are tasks for the first time, and then "
    "at most once in half an hour, and only if a task ran or was changed.",
)
def tasks_changed(
    context: dg.SensorEvaluationContext, sumaclock: dg.ResourceParam[Sumaclock]
) -> dg.RunRequest | dg.SkipReason:
    from sumaclock_dagster.reports.task_changes import see_tasks, tasks_worth_reporting

    with sumaclock.connect("sensor") as conn:
        now = see_tasks(conn)
    if not tasks_worth_reporting(now, _reported(context.cursor)):
        return dg.SkipReason(f"Nothing new, or reported not long ago: {now.tasks} tasks.")
    context.update_cursor(json.dumps(asdict(now)))
    return dg.RunRequest()


TITLE_SHOWN = 24
TOTALS = {
    "task_runs": "task runs",
    "done": "done",
    "failed": "failed",
    "skipped": "skipped",
    "running": "running in Dagster",
    "lateness_p50": "lateness p50 (s)",
    "lateness_p99": "lateness p99 (s)",
}
ORGANIZATION_COLUMNS = {
    "organization": "string",
    "done": "int",
    "failed": "int",
    "skipped": "int",
    "lateness p50 (s)": "float",
    "lateness p99 (s)": "float",
}
TASK_RUN_COLUMNS = {
    "task": "string",
    "kind": "string",
    "outcome": "string",
    "error": "string",
    "meant for (UTC)": "string",
    "lateness (s)": "float",
    "trigger": "string",
    "owner": "string",
    "task id": "string",
    "Dagster run": "string",
}
FIRING_COLUMNS = {
    "task": "string",
    "local time": "string",
    "UTC": "string",
    "kind": "string",
    "launches": "string",
    "owner": "string",
    "time zone": "string",
    "clock change": "string",
    "task id": "string",
}


def _organization(row: Mapping[Any, Any]) -> dict[str, Any]:
    counted = (row["organization_id"], row["done"], row["failed"], row["skipped"])
    values = (*counted, _seconds(row["lateness_p50"]), _seconds(row["lateness_p99"]))
    return dict(zip(ORGANIZATION_COLUMNS, values, strict=True))


def _seconds(value: float | None) -> float | None:
    """For a table: an empty cell where nothing was late or early."""
    return None if value is None or math.isnan(value) else round(value, 3)


def _task_run(run: Mapping[Any, Any]) -> dict[str, Any]:
    values = (
        _title(run["title"]),
        run["kind"],
        run["status"],
        run["error"],
        unbroken(f"{run['scheduled_for']:%d %b %Y %H:%M}"),
        round(run["lateness"], 3),
        run["trigger"],
        f"{run['organization_id']}/{run['user_id']}",
        run["task_id"].hex,
        # As the UI shows a Dagster run.
        str(run["dagster_run_id"] or "")[:8],
    )
    return dict(zip(TASK_RUN_COLUMNS, values, strict=True))


def _firing(firing: Mapping[Any, Any]) -> dict[str, Any]:
    values = (
        _title(firing["title"]),
        _local(firing["local"]),
        unbroken(f"{firing['occurrence']:%d %b %H:%M}"),
        firing["kind"],
        firing["target"],
        f"{firing['organization_id']}/{firing['user_id']}",
        firing["timezone"],
        firing["change"],
        firing["task_id"].hex,
    )
    return dict(zip(FIRING_COLUMNS, values, strict=True))


def _local(iso: str) -> str:
    """ "Mon 07 Dec 2026 09:00 +01:00" """
    return unbroken(f"{datetime.fromisoformat(iso):%a %d %b %Y %H:%M} {iso[16:]}")


def _title(text: str) -> str:
    return unbroken(text if len(text) <= TITLE_SHOWN else f"{text[: TITLE_SHOWN - 1]}…")


def _picture(title: str, png: bytes) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{b64encode(png).decode()})")


def _reported(cursor: str | None) -> TasksSeen | None:
    """What the cursor says of the last report; None for one that says nothing."""
    from sumaclock_dagster.reports.task_changes import TasksSeen

    try:
        values = json.loads(cursor or "")
        return TasksSeen(values["tasks"], values["changed"], values["newest_run"], values["seen_at"])
    except (ValueError, KeyError, TypeError):
        return None
