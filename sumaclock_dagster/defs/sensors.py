"""Sensors: what keeps workers alive, and what keeps the report of failures fresh."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from sumaclock_dagster.defs.assets import report_failures
from sumaclock_dagster.defs.resources import Sumaclock
from sumaclock_dagster.defs.work import work
from sumaclock_dagster.queue.watch import Look, watch
from sumaclock_dagster.queue.workers import request_worker

WATCH_SECONDS = 20.0
FAILURES_EVERY_SECONDS = 600


@dg.sensor(
    job=work,
    minimum_interval_seconds=1,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Keeps the wanted number of workers alive and gives back the runs of dead ones. It waits for news from "
    "the database, so one tick takes up to 20 s. Without it runs wait; nothing is lost.",
)
def pending_runs(sumaclock: dg.ResourceParam[Sumaclock]) -> Iterator[dg.RunRequest | dg.SkipReason]:
    with sumaclock.connect("sensor") as conn:
        seen = watch(conn, sumaclock.settings, sumaclock.code_version, WATCH_SECONDS)
        if seen.wanted == 0:
            yield dg.SkipReason(_what_it_saw(seen))
        for _ in range(seen.wanted):
            worker_id = request_worker(conn, sumaclock.code_version)
            config = {"worker_id": worker_id, "code_version": sumaclock.code_version}
            yield dg.RunRequest(
                run_config={"ops": {"claim_and_execute": {"config": config}}},
                tags={"sumaclock/worker": str(worker_id)},
            )


@dg.sensor(
    job=report_failures,
    minimum_interval_seconds=FAILURES_EVERY_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Renews the asset run_failures and the checks when runs failed, or when kinds lack a handler.",
)
def failures_changed(
    context: dg.SensorEvaluationContext, sumaclock: dg.ResourceParam[Sumaclock]
) -> dg.RunRequest | dg.SkipReason:
    from sumaclock_dagster.reports.failures import failures_digest

    with sumaclock.connect("sensor") as conn:
        digest = failures_digest(conn, sumaclock.handlers)
    if digest == context.cursor:
        return dg.SkipReason("Nothing new: no run failed or aged, and no kind lost or got its handler.")
    context.update_cursor(digest)
    return dg.RunRequest()


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
