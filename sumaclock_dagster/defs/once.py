"""Assets of the one-off commands: what waits and runs, and what failed for good."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import dagster as dg

from sumaclock_dagster.defs.assets import GROUP, HOURS, LISTED, OWNERS
from sumaclock_dagster.defs.cursors import read_cursor
from sumaclock_dagster.defs.metadata import first_line, table, unbroken
from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock
from sumaclock_dagster.once.queue import FailedCommand, QueuedCommand, list_failed, list_queued
from sumaclock_dagster.reports.once import RoleQueue, failed_lately, queues_by_role, silent_roles

AGAIN_AFTER_SECONDS = 600


@dg.asset(
    io_manager_key=OWN_IO_KEY,
    group_name=GROUP,
    owners=OWNERS,
    kinds={"postgres", "table"},
    check_specs=[
        dg.AssetCheckSpec(
            "commands_are_looked_for",
            asset="job_queue",
            description="No command is due for over 2 minutes without a runner of its role looking. It blocks nothing.",
        )
    ],
    description="One-off commands (sumaclock.schedule_once) that wait and run inside PostgreSQL: the app role's one by "
    "one, all roles' in numbers. Those that succeed leave. As of the moment when this was materialised.",
)
def job_queue(sumaclock: dg.ResourceParam[Sumaclock]) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster knows it only bare
    with sumaclock.connect("report") as conn:
        queues = queues_by_role(conn)
        queued = list_queued(conn, LISTED)
    return dg.MaterializeResult(
        metadata={
            "due": sum(queue.due for queue in queues),
            "running": sum(queue.running for queue in queues),
            "waiting for their time": sum(queue.waiting for queue in queues),
            "by role": table([_role(queue) for queue in queues], ROLE_COLUMNS),
            "commands of the app role": table([_queued(entry) for entry in queued], QUEUE_COLUMNS),
        },
        check_results=[_looked_for(queues)],
    )


@dg.asset(
    io_manager_key=OWN_IO_KEY,
    group_name=GROUP,
    owners=OWNERS,
    deps=[job_queue],
    kinds={"postgres", "table"},
    check_specs=[
        dg.AssetCheckSpec(
            "no_command_failed",
            asset="job_errors",
            description=f"No one-off command of any role failed for good within the last {HOURS} hours. It blocks "
            "nothing.",
        )
    ],
    description="One-off commands that failed in all their attempts: the app role's one by one, all roles' in numbers.",
)
def job_errors(sumaclock: dg.ResourceParam[Sumaclock]) -> dg.MaterializeResult:  # type: ignore[type-arg]  # as above
    with sumaclock.connect("report") as conn:
        queues = queues_by_role(conn)
        failed = list_failed(conn, LISTED)
    return dg.MaterializeResult(
        metadata={
            f"failed in {HOURS} h": failed_lately(queues),
            **{f"failed in {HOURS} h as {q.queued_by}": q.failed_lately for q in queues if q.failed_lately},
            "newest of the app role": table([_failed(entry) for entry in failed], FAILED_COLUMNS),
        },
        check_results=[_none_failed(queues)],
    )


report_commands = dg.define_asset_job(
    "report_commands",
    selection=dg.AssetSelection.assets(job_queue, job_errors)
    | dg.AssetSelection.checks_for_assets(job_queue, job_errors),
    executor_def=dg.in_process_executor,
    description="Materialises job_queue and job_errors with their checks.",
)


@dg.sensor(
    job=report_commands,
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Looks every minute at the queue of one-off commands. Renews job_queue and job_errors at once when a "
    "command failed for good or their checks would change, and every ten minutes while the queue changes.",
)
def commands_changed(
    context: dg.SensorEvaluationContext, sumaclock: dg.ResourceParam[Sumaclock]
) -> dg.RunRequest | dg.SkipReason:
    with sumaclock.connect("sensor") as conn:
        queues = queues_by_role(conn)
    counts = [[queue.queued_by, queue.due, queue.running, queue.waiting] for queue in queues]
    urgent = [silent_roles(queues), failed_lately(queues)]
    at = max((queue.seen_at.timestamp() for queue in queues), default=0.0)
    reported = read_cursor(context.cursor, urgent=list, counts=list, at=float)
    waits = sum(queue.due + queue.running + queue.waiting for queue in queues)
    if reported is None and urgent == [[], 0] and not waits:
        return dg.SkipReason("No one-off command has been queued.")
    if reported and reported["urgent"] == urgent:
        if reported["counts"] == counts:
            return dg.SkipReason(f"As reported: {waits} commands in the queue.")
        if at - reported["at"] < AGAIN_AFTER_SECONDS:
            return dg.SkipReason(f"Reported not long ago; {waits} commands are in the queue.")
    context.update_cursor(json.dumps({"urgent": urgent, "counts": counts, "at": at}))
    return dg.RunRequest()


ROLE_COLUMNS = {
    "role": "string",
    "due": "int",
    "running": "int",
    "waiting": "int",
    "runners": "int",
    "last look (UTC)": "string",
    f"failed in {HOURS} h": "int",
}
QUEUE_COLUMNS = {
    "command": "int",
    "state": "string",
    "attempts": "string",
    "since or from (UTC)": "string",
    "SQL": "string",
    "last error": "string",
    "note": "string",
}
FAILED_COLUMNS = {
    "command": "int",
    "SQLSTATE": "string",
    "error": "string",
    "attempts": "int",
    "failed (UTC)": "string",
    "SQL": "string",
    "note": "string",
}


def _looked_for(queues: Sequence[RoleQueue]) -> dg.AssetCheckResult:
    silent = silent_roles(queues)
    saw = (
        f"Commands of {', '.join(silent)} are due, and no runner takes them."
        if silent
        else f"{sum(queue.due for queue in queues)} commands are due, and runners look."
    )
    remedy = (
        " Is pg_cron running (`sumaclock doctor`), and may the role log in and connect? `sumaclock once enable` makes "
        "the app role's runners anew, with --role another's; its failures are in cron.job_run_details."
    )
    return dg.AssetCheckResult(
        check_name="commands_are_looked_for",
        passed=not silent,
        severity=dg.AssetCheckSeverity.WARN,
        description=saw + (remedy if silent else ""),
        metadata={"silent roles": len(silent)},
    )


def _none_failed(queues: Sequence[RoleQueue]) -> dg.AssetCheckResult:
    failed = failed_lately(queues)
    saw = f"{failed or 'No'} command{'' if failed == 1 else 's'} failed for good within the last {HOURS} hours."
    remedy = " `sumaclock once errors` has what PostgreSQL said; mend the cause, then `sumaclock once retry <command>`."
    return dg.AssetCheckResult(
        check_name="no_command_failed",
        passed=failed == 0,
        severity=dg.AssetCheckSeverity.WARN,
        description=saw + (remedy if failed else ""),
        metadata={"failed commands": failed},
    )


def _role(queue: RoleQueue) -> Mapping[str, Any]:
    looked = _minute(queue.looked_at) if queue.looked_at else "never"
    values = (queue.queued_by, queue.due, queue.running, queue.waiting, queue.runners, looked, queue.failed_lately)
    return dict(zip(ROLE_COLUMNS, values, strict=True))


def _queued(entry: QueuedCommand) -> Mapping[str, Any]:
    values = (
        entry.jobid,
        entry.state,
        unbroken(f"{entry.attempts} of {entry.max_attempts}"),
        _minute(entry.started_at or entry.due_at),
        first_line(entry.command),
        first_line(entry.message),
        first_line(entry.note),
    )
    return dict(zip(QUEUE_COLUMNS, values, strict=True))


def _failed(entry: FailedCommand) -> Mapping[str, Any]:
    values = (
        entry.jobid,
        entry.sqlstate,
        first_line(entry.message),
        entry.attempts,
        _minute(entry.failed_at),
        first_line(entry.command),
        first_line(entry.note),
    )
    return dict(zip(FAILED_COLUMNS, values, strict=True))


def _minute(moment: datetime) -> str:
    return unbroken(f"{moment:%d %b %Y %H:%M}")
