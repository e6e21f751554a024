"""The daily prune: job and schedule."""

from collections.abc import Iterable

import dagster as dg

from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock
from sumaclock_dagster.own_system_jobs import PRUNE
from sumaclock_dagster.prune import (
    prune_core_api_jobs,
    prune_failed_commands,
    prune_launches,
    prune_runs,
    prune_system_job_runs,
    prune_workers,
)
from sumaclock_dagster.queue.system_jobs import list_system_jobs

NOTHING = dg.Out(dg.Nothing, io_manager_key=OWN_IO_KEY, description="What was deleted is in the metadata.")


@dg.op(
    out=NOTHING,
    description="Deletes finished runs, core-api jobs and failed commands, stopped workers and periods of system jobs "
    "older than SUMACLOCK_RETENTION_DAYS, at most 1,000 rows a transaction. What is unfinished stays, however old.",
)
def delete_old_history(context: dg.OpExecutionContext, sumaclock: dg.ResourceParam[Sumaclock]) -> None:
    days = sumaclock.settings.retention_days
    with sumaclock.connect("prune") as app:
        runs = _all_of(context, "runs", prune_runs(app, days))
        requests = _all_of(context, "core-api jobs", prune_core_api_jobs(app, days))
        commands = _all_of(context, "failed commands", prune_failed_commands(app, days))
        workers = _all_of(context, "workers", prune_workers(app, days))
        launches = _all_of(context, "launches", prune_launches(app, days))
        periods = _all_of(context, "periods of system jobs", prune_system_job_runs(app, days))
    deleted = {
        "deleted runs": runs,
        "deleted core-api jobs": requests,
        "deleted failed commands": commands,
        "deleted workers": workers,
        "deleted launches": launches,
        "deleted periods of system jobs": periods,
    }
    context.add_output_metadata({**deleted, "retention (days)": days})


@dg.job(name="prune", executor_def=dg.in_process_executor, description="Deletes history past its retention time.")
def prune_job() -> None:
    delete_old_history()


@dg.schedule(
    name="prune",
    job=prune_job,
    cron_schedule="17 3 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Once a day: sees whether a worker has pruned, by the system job prune, and launches only if none has.",
)
def prune_schedule(sumaclock: dg.ResourceParam[Sumaclock]) -> dg.RunRequest | dg.SkipReason:
    with sumaclock.connect("prune") as app:
        states = list_system_jobs(app, [job for name, job in sumaclock.handlers.system_jobs.items() if name == PRUNE])
    if states and all(state.is_fresh for state in states):
        return dg.SkipReason("A worker has pruned, by the system job prune.")
    return dg.RunRequest()


def _all_of(context: dg.OpExecutionContext, what: str, batches: Iterable[int]) -> int:
    deleted = 0
    for number, batch in enumerate(batches, 1):
        deleted += batch
        if number % 100 == 0:
            context.log.info(f"{deleted} {what} deleted so far.")
    context.log.info(f"Deleted {deleted} old {what}.")
    return deleted
