"""The asset clock_health: how clock, queue and workers are doing."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import dagster as dg

from sumaclock_dagster.db import database_name
from sumaclock_dagster.defs.assets import GROUP, HOURS, OWNERS
from sumaclock_dagster.defs.cursors import read_cursor
from sumaclock_dagster.defs.health_checks import HEALTH_CHECKS, check_health
from sumaclock_dagster.defs.metadata import CRON_RUNS, table
from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock
from sumaclock_dagster.model import SumaclockError

AGAIN_AFTER_SECONDS = 21_600


@dg.asset(
    io_manager_key=OWN_IO_KEY,
    group_name=GROUP,
    owners=OWNERS,
    deps=[CRON_RUNS],
    kinds={"postgres", "table"},
    check_specs=HEALTH_CHECKS,
    description="How the clock is doing: last firing, lateness by hour, what waits, live workers, what pg_cron itself "
    "could not do, and what slows the queue. Its checks say what to do. As of the moment when this was materialised.",
)
def clock_health(sumaclock: dg.ResourceParam[Sumaclock]) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster knows it only bare
    # As in assets.py: too long to import for the processes of workers.
    from sumaclock_dagster.reports import clock_health as report
    from sumaclock_dagster.reports.health_pictures import draw_firings, draw_lateness

    days = sumaclock.settings.retention_days
    with sumaclock.connect("report") as conn:
        pulse = report.feel_pulse(conn, days)
        oldest = report.oldest_transaction(conn)
        results = check_health(conn, pulse, report.clock_life(conn, pulse, days), oldest)
        by_hour = report.lateness_by_hour(conn, HOURS)
        by_outcome = report.firings_by_outcome(conn)
    return dg.MaterializeResult(
        metadata={
            "lateness by hour": _picture("Lateness by hour", draw_lateness(by_hour)),
            "firings by outcome": _picture("Firings by outcome", draw_firings(by_outcome)),
            "last firing": f"{pulse.last_firing:%Y-%m-%d %H:%M} UTC" if pulse.last_firing else "none",
            "pending runs": pulse.pending,
            "oldest pending run (s)": round(pulse.oldest_pending_seconds or 0.0, 1),
            "live workers": pulse.live_workers,
            "late tasks": pulse.late_tasks,
            "oldest transaction (s)": round(oldest.seconds, 1) if oldest else 0.0,
            "oldest transaction of": oldest.who if oldest else "none",
            "dead rows of cron_runs": pulse.dead_rows,
            **_clock_failures(sumaclock),
            "lateness": table([_hour(row) for row in by_hour.to_dict("records")], HOUR_COLUMNS),
        },
        check_results=results,
    )


report_health = dg.define_asset_job(
    "report_health",
    selection=dg.AssetSelection.assets(clock_health) | dg.AssetSelection.checks_for_assets(clock_health),
    executor_def=dg.in_process_executor,
    description="Materialises clock_health and its checks.",
)


@dg.sensor(
    job=report_health,
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Looks every minute whether the checks of clock_health would pass. Renews the asset at once when one "
    "begins or ceases to fail, and every six hours while the clock fires.",
)
def health_changed(
    context: dg.SensorEvaluationContext, sumaclock: dg.ResourceParam[Sumaclock]
) -> dg.RunRequest | dg.SkipReason:
    from sumaclock_dagster.reports import clock_health as report

    days = sumaclock.settings.retention_days
    with sumaclock.connect("sensor") as conn:
        pulse = report.feel_pulse(conn, days)
        life = report.clock_life(conn, pulse, days)
        results = check_health(conn, pulse, life, report.oldest_transaction(conn))
    failing = sorted(str(result.check_name) for result in results if not result.passed)
    last, at = str(pulse.last_firing), pulse.seen_at.timestamp()
    reported = read_cursor(context.cursor, failing=list, last=str, at=float)
    renew = reported and reported["last"] != last and at - reported["at"] >= AGAIN_AFTER_SECONDS
    if reported and reported["failing"] == failing and not renew:
        return dg.SkipReason(f"As reported: {', '.join(failing) or 'no check'} fails.")
    context.update_cursor(json.dumps({"failing": failing, "last": last, "at": at}))
    return dg.RunRequest()


HOUR_COLUMNS = {
    "hour (UTC)": "string",
    "firings": "int",
    "lateness p50 (s)": "float",
    "lateness p95 (s)": "float",
    "lateness p99 (s)": "float",
}
FAILURE_COLUMNS = {"message": "string", "firings": "int", "newest (UTC)": "string"}


def _clock_failures(sumaclock: Sumaclock) -> dict[str, Any]:
    """What pg_cron notes. A report of health must not fail because the clock is away."""
    from sumaclock_dagster.reports.clock_health import clock_failures

    try:
        with sumaclock.connect_to_cron("report") as cron:
            failures = clock_failures(cron, database_name(sumaclock.settings.app_url), HOURS).to_dict("records")
    except SumaclockError as error:
        return {"failures of pg_cron": f"unknown: {error}"}
    rows = [
        # A missing time is not equal to itself.
        (row["message"], row["firings"], f"{row['newest']:%Y-%m-%d %H:%M}" if row["newest"] == row["newest"] else "")
        for row in failures
    ]
    return {
        f"failures of pg_cron in {HOURS} h": sum(int(row["firings"]) for row in failures),
        "failures of pg_cron": table([dict(zip(FAILURE_COLUMNS, row, strict=True)) for row in rows], FAILURE_COLUMNS),
    }


def _hour(row: Mapping[Any, Any]) -> dict[str, Any]:
    late = [None if math.isnan(row[name]) else round(row[name], 3) for name in ("p50", "p95", "p99")]
    return dict(zip(HOUR_COLUMNS, (f"{row['hour']:%Y-%m-%d %H:00}", row["firings"], *late), strict=True))


def _picture(title: str, png: bytes) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{b64encode(png).decode()})")
