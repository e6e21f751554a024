"""The daily end of Dagster's own history: job and schedule."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import dagster as dg

from sumaclock_dagster.dagster_history import open_storage, runless_events, why_not_storage
from sumaclock_dagster.db import Connection
from sumaclock_dagster.defs.dagster_history import label_of, old_runs, owned_by_us, prune, purge_ticks, runs_to_keep
from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.queue.workers import read_clock


@dg.op(
    out=dg.Out(dg.Nothing, io_manager_key=OWN_IO_KEY, description="What was deleted is in the metadata."),
    description="Deletes Dagster runs of our jobs and assets that ended more than SUMACLOCK_DAGSTER_RETENTION_DAYS "
    "ago, with their events, output, check executions and snapshots, and old ticks of our sensors and schedules. "
    "Dagster keeps all that for ever. What an asset shows as its latest stays, and so does whatever is not ours.",
)
def delete_old_dagster_history(context: dg.OpExecutionContext, sumaclock: dg.ResourceParam[Sumaclock]) -> None:
    days = sumaclock.settings.dagster_retention_days
    now = _now(sumaclock)
    label = label_of(context.run)
    with _storage(sumaclock, context.instance) as (storage, reason):
        if reason:
            context.log.warning(f"Dagster's database is not looked into, so what Dagster leaves behind stays: {reason}")
        deleted = prune(context.instance, storage, label, now - timedelta(days=days), context.log.info)
    deleted.tick_logs = purge_ticks(context.instance, label, now, days)
    context.add_output_metadata({**deleted.in_words(), "retention (days)": days})


@dg.job(
    name="prune_dagster",
    executor_def=dg.in_process_executor,
    description="Deletes Dagster's history of our jobs and assets past its retention time.",
)
def prune_dagster_job() -> None:
    delete_old_dagster_history()


@dg.schedule(
    job=prune_dagster_job,
    name="prune_dagster",
    cron_schedule="29 3 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Once a day: looks for Dagster runs of ours past their retention time. Launches nothing when there is "
    "none.",
)
def prune_dagster_schedule(
    context: dg.ScheduleEvaluationContext, sumaclock: dg.ResourceParam[Sumaclock]
) -> dg.RunRequest | dg.SkipReason:
    days = sumaclock.settings.dagster_retention_days
    before = _now(sumaclock) - timedelta(days=days)
    kept = runs_to_keep(context.instance)
    if any(old_runs(context.instance, kept, before)):
        return dg.RunRequest()
    with _storage(sumaclock, context.instance) as (storage, _):
        if storage is not None and any(runless_events(storage, owned_by_us(kept), before)):
            return dg.RunRequest()
    return dg.SkipReason(f"No Dagster run of ours ended more than {days} days ago.")


@contextmanager
def _storage(sumaclock: Sumaclock, instance: dg.DagsterInstance) -> Iterator[tuple[Connection | None, str]]:
    """A connection to the database of this very instance and "", or None and the reason."""
    try:
        storage = open_storage(sumaclock.settings.dagster_url, "prune")
    except SumaclockError as error:
        yield None, str(error)
        return
    with storage:
        # Only storages in a database have an id.
        own_id = getattr(instance.run_storage, "get_run_storage_id", lambda: "")()
        reason = why_not_storage(storage, own_id)
        yield (None, reason) if reason else (storage, "")


def _now(sumaclock: Sumaclock) -> datetime:
    with sumaclock.connect("prune") as app:
        return datetime.fromtimestamp(read_clock(app), UTC)
