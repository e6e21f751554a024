"""The daily prune: job and schedule."""

import dagster as dg

from sumaclock_dagster.defs.resources import Sumaclock
from sumaclock_dagster.prune import Pruned
from sumaclock_dagster.prune import prune as prune_history


@dg.op(
    out=dg.Out(dg.Nothing, description="What was deleted is in the metadata."),
    description="Deletes finished runs and stopped workers older than SUMACLOCK_RETENTION_DAYS, at most 1,000 rows a "
    "transaction. Unfinished runs stay, however old they are.",
)
def delete_old_history(context: dg.OpExecutionContext, sumaclock: dg.ResourceParam[Sumaclock]) -> None:
    days = sumaclock.settings.retention_days
    pruned = Pruned(0, 0, 0)
    with sumaclock.connect("prune") as conn:
        for pruned in prune_history(conn, days):
            if pruned.batches % 100 == 0:
                context.log.info(f"{pruned.runs} runs deleted so far.")
    context.log.info(f"Deleted {pruned.runs} runs and {pruned.workers} workers older than {days} days.")
    context.add_output_metadata(
        {"deleted runs": pruned.runs, "deleted workers": pruned.workers, "retention (days)": days}
    )


@dg.job(
    name="prune",
    executor_def=dg.in_process_executor,
    description="Deletes history older than the retention time.",
)
def prune() -> None:
    delete_old_history()


daily_prune = dg.ScheduleDefinition(
    name="daily_prune",
    job=prune,
    cron_schedule="17 3 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Once a day at a quiet minute.",
)
