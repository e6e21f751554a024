"""Sensors: what keeps workers alive, and what keeps the report of failures fresh."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import dagster as dg

from sumaclock_dagster.defs.assets import report_failures
from sumaclock_dagster.defs.resources import Sumaclock, location_of
from sumaclock_dagster.defs.ticks import WATCH_SECONDS
from sumaclock_dagster.defs.work import work
from sumaclock_dagster.queue.watch import Look, watch
from sumaclock_dagster.queue.workers import other_locations, request_worker

if TYPE_CHECKING:
    from sumaclock_dagster.reports.changes import Seen


@dg.sensor(
    job=work,
    minimum_interval_seconds=1,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Keeps the wanted number of workers alive and gives back the runs of dead ones. It waits for news from "
    "the database, so one tick takes up to 20 s. Without it runs wait; nothing is lost.",
)
def pending_runs(
    context: dg.SensorEvaluationContext, sumaclock: dg.ResourceParam[Sumaclock]
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    here = location_of(context)
    with sumaclock.connect("sensor") as conn:
        seen = watch(conn, sumaclock.settings, sumaclock.code_version, WATCH_SECONDS, here)
        if seen.wanted == 0:
            yield dg.SkipReason(_what_it_saw(seen) + _who_else(other_locations(conn, here) if here else []))
        for _ in range(seen.wanted):
            worker_id = request_worker(conn, sumaclock.code_version, here)
            config = {"worker_id": worker_id, "code_version": sumaclock.code_version}
            yield dg.RunRequest(
                run_config={"ops": {"claim_and_execute": {"config": config}}},
                tags={"sumaclock/worker": str(worker_id)},
            )


@dg.sensor(
    job=report_failures,
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Renews the asset run_failures and the checks: at once when the first run fails, when the last failure "
    "is over, or when a kind lost or got its handler; once in half an hour while runs keep failing.",
)
def failures_changed(
    context: dg.SensorEvaluationContext, sumaclock: dg.ResourceParam[Sumaclock]
) -> dg.RunRequest | dg.SkipReason:
    from sumaclock_dagster.reports.changes import see, worth_reporting

    with sumaclock.connect("sensor") as conn:
        now = see(conn, sumaclock.handlers)
    if not worth_reporting(now, _reported(context.cursor)):
        return dg.SkipReason(f"Reported already, or not long ago: {now.failed} failed runs within the last day.")
    context.update_cursor(json.dumps(asdict(now)))
    return dg.RunRequest()


def _reported(cursor: str | None) -> Seen | None:
    """What the cursor says of the last report; None for no cursor, or one that an older version or a hand wrote."""
    from sumaclock_dagster.reports.changes import Seen

    try:
        values = json.loads(cursor or "")
        return Seen(values["failed"], values["newest"], tuple(values["missing"]), values["seen_at"])
    except (ValueError, KeyError, TypeError):
        return None


def _who_else(locations: list[str]) -> str:
    if not locations:
        return ""
    return (
        f" Workers of code location {' and '.join(locations)} live in this app database, too. sumaclock belongs into "
        "one code location of each app database: what only one of them has, a kind or a target, fails in the other. "
        "`sumaclock doctor` says what to do."
    )


def _what_it_saw(seen: Look) -> str:
    state = seen.state
    parts = [
        f"{state.live} live, {state.starting} starting and {state.retiring} retiring workers",
        f"{state.due} due runs" + (f", the oldest for {state.oldest_due_seconds:.1f} s" if state.due else ""),
    ]
    if seen.retired:
        parts.append(f"{seen.retired} workers of older code were told to retire")
    if seen.released.pending or seen.released.failed:
        parts.append(
            f"of dead workers {seen.released.pending} runs were given back and {seen.released.failed} were failed"
        )
    return "; ".join(parts) + "."
