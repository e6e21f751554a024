"""Reports as Dagster shows them: numbers that it plots, tables, and one observation a flush."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from sumaclock_dagster.model import FiringLine, FlushReport

CRON_RUNS = dg.AssetKey("cron_runs")
OUTCOMES = ("done", "failed", "skipped", "retry", "claim lost")
ERROR_SHOWN = 300


def observation(report: FlushReport) -> dg.AssetObservation:
    """One observation of the asset `cron_runs`: counts by kind and outcome, lateness in seconds, and the firings."""
    by_outcome = Counter[str]()
    for (_, outcome), runs in report.counts.items():
        by_outcome[outcome] += runs
    numbers: dict[str, dg.MetadataValue[Any]] = {"runs": dg.MetadataValue.int(report.total)}
    for outcome in (*OUTCOMES, *sorted(set(by_outcome) - set(OUTCOMES))):
        numbers[outcome] = dg.MetadataValue.int(by_outcome[outcome])
    if report.lateness_seconds:
        numbers["lateness p50 (s)"] = dg.MetadataValue.float(round(percentile(report.lateness_seconds, 50), 4))
        numbers["lateness p99 (s)"] = dg.MetadataValue.float(round(percentile(report.lateness_seconds, 99), 4))
    return dg.AssetObservation(
        asset_key=CRON_RUNS,
        description=", ".join(f"{runs} {outcome}" for outcome, runs in by_outcome.items() if runs),
        metadata={
            **numbers,
            "by kind": table(
                [{"kind": kind, "outcome": outcome, "runs": n} for (kind, outcome), n in sorted(report.counts.items())],
                {"kind": "string", "outcome": "string", "runs": "int"},
            ),
            "firings": table([_firing(line) for line in report.firings], FIRING_COLUMNS),
        },
    )


FIRING_COLUMNS = {
    "run": "int",
    "kind": "string",
    "outcome": "string",
    "error": "string",
    "lateness (s)": "float",
    "duration (s)": "float",
    "scheduled (UTC)": "string",
    "attempt": "int",
    "organization": "string",
    "user": "string",
}


def failure_line(line: FiringLine) -> str:
    """What the Dagster log says of a failed run."""
    return (
        f"Run {line.run_id} failed (kind {line.kind}, organization {line.organization_id}, user {line.user_id}, job "
        f"{line.job_id}, meant for {line.scheduled_at:%Y-%m-%d %H:%M} UTC, attempt {line.attempt}): {line.error}"
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of `values`, which must not be empty."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)]


def table(rows: Sequence[Mapping[Any, Any]], columns: Mapping[str, str]) -> dg.TableMetadataValue:
    """`rows` as a table of `columns` (name to type: string, int or float); it may be empty."""
    return dg.MetadataValue.table(
        records=[dg.TableRecord(dict(row)) for row in rows],
        schema=dg.TableSchema([dg.TableColumn(name, type_) for name, type_ in columns.items()]),
    )


def unbroken(text: str) -> str:
    """The UI breaks lines of tables at spaces and at hyphens; which is why ids stand there without their hyphens."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def first_line(text: str | None) -> str:
    """The first line of an error, cut for a table; '' for None."""
    return (text or "").partition("\n")[0][:ERROR_SHOWN]


def _firing(line: FiringLine) -> dict[str, Any]:
    values = (
        line.run_id,
        line.kind,
        line.outcome,
        first_line(line.error),
        round(line.lateness_seconds, 4),
        round(line.duration_seconds, 4),
        unbroken(f"{line.scheduled_at:%d %b %Y %H:%M}"),
        line.attempt,
        line.organization_id,
        line.user_id,
    )
    return dict(zip(FIRING_COLUMNS, values, strict=True))
