"""The daily prune: job and schedule."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import dagster as dg

from sumaclock_dagster.db import database_name
from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock
from sumaclock_dagster.prune import (
    prune_core_api_jobs,
    prune_failed_commands,
    prune_firings,
    prune_runs,
    prune_workers,
)
from sumaclock_dagster.queue.workers import read_clock

OWN_JOBS = (
    "work",
    "heartbeat",
    "repair",
    "sync",
    "prune",
    "report_failures",
    "report_tasks",
    "report_health",
    "report_commands",
    "pause_task",
    "resume_task",
    "run_task_now",
)
FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
DAGSTER_BATCH = 100
NOTHING = dg.Out(dg.Nothing, io_manager_key=OWN_IO_KEY, description="What was deleted is in the metadata.")


@dg.op(
    out=NOTHING,
    description="Deletes finished runs, core-api jobs and failed commands, stopped workers and pg_cron's log entries older than "
    "SUMACLOCK_RETENTION_DAYS, at most 1,000 rows a transaction. What is unfinished stays, however old it is.",
)
def delete_old_history(context: dg.OpExecutionContext, sumaclock: dg.ResourceParam[Sumaclock]) -> None:
    days = sumaclock.settings.retention_days
    database = database_name(sumaclock.settings.app_url)
    with sumaclock.connect("prune") as app:
        runs = _all_of(context, "runs", prune_runs(app, days))
        requests = _all_of(context, "core-api jobs", prune_core_api_jobs(app, days))
        commands = _all_of(context, "failed commands", prune_failed_commands(app, days))
        workers = _all_of(context, "workers", prune_workers(app, days))
    with sumaclock.connect_to_cron("prune") as cron:
        firings = _all_of(context, "firings in pg_cron's log", prune_firings(cron, database, days))
    deleted = {
        "deleted runs": runs,
        "deleted core-api jobs": requests,
        "deleted failed commands": commands,
        "deleted workers": workers,
        "deleted log entries of pg_cron": firings,
    }
    context.add_output_metadata({**deleted, "retention (days)": days})


@dg.op(
    ins={"after": dg.In(dg.Nothing)},
    out=NOTHING,
    description="Deletes Dagster runs of this code location that ended more than SUMACLOCK_RETENTION_DAYS ago, with "
    "their events and output. Dagster itself keeps them for ever.",
)
def delete_old_dagster_runs(context: dg.OpExecutionContext, sumaclock: dg.ResourceParam[Sumaclock]) -> None:
    with sumaclock.connect("prune") as app:
        now = datetime.fromtimestamp(read_clock(app), UTC)
    before = now - timedelta(days=sumaclock.settings.retention_days)
    deleted = sum(_delete_dagster_runs(context, job, before) for job in OWN_JOBS)
    context.log.info(f"Deleted {deleted} Dagster runs that were last updated before {before:%Y-%m-%d %H:%M} UTC.")
    context.add_output_metadata({"deleted Dagster runs": deleted})


@dg.job(name="prune", executor_def=dg.in_process_executor, description="Deletes history past its retention time.")
def prune_job() -> None:
    delete_old_dagster_runs(after=delete_old_history())


prune_schedule = dg.ScheduleDefinition(
    name="prune",
    job=prune_job,
    cron_schedule="17 3 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Once a day at a quiet minute.",
)


def _all_of(context: dg.OpExecutionContext, what: str, batches: Iterable[int]) -> int:
    deleted = 0
    for number, batch in enumerate(batches, 1):
        deleted += batch
        if number % 100 == 0:
            context.log.info(f"{deleted} {what} deleted so far.")
    context.log.info(f"Deleted {deleted} old {what}.")
    return deleted


def _delete_dagster_runs(context: dg.OpExecutionContext, job: str, before: datetime) -> int:
    instance = context.instance
    old = dg.RunsFilter(job_name=job, statuses=FINISHED, updated_before=before)
    deleted = 0
    while runs := instance.get_runs(old, limit=DAGSTER_BATCH):
        for run in runs:
            instance.compute_log_manager.delete_logs(prefix=[run.run_id])
            instance.delete_run(run.run_id)
        deleted += len(runs)
    return deleted
