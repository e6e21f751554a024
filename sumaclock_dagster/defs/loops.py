"""The loops that mend by themselves: heartbeat every two minutes, repair every hour. Each looks first, when its
schedule is evaluated, and launches a Dagster run only when there is something to mend."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg

from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import Connection
from sumaclock_dagster.defs.assets import LISTED
from sumaclock_dagster.defs.clock_faults import look_for_faults
from sumaclock_dagster.defs.metadata import table
from sumaclock_dagster.defs.reconcile import both_sides, in_words, sync_numbers
from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock
from sumaclock_dagster.queue.dagster_runs import gone_dagster_runs
from sumaclock_dagster.queue.workers import read_clock

if TYPE_CHECKING:
    from sumaclock_dagster.reconcile.heartbeat import LateTask, MissedFiring

ALIVE = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
# Time that a Dagster run has to register its worker.
START = timedelta(minutes=10)
NOTHING = dg.Out(dg.Nothing, io_manager_key=OWN_IO_KEY, description="What was mended is in the metadata.")
GONE = (
    "The worker of this Dagster run has no session in the database any more, so its process is gone. What it held went "
    "back to the queue."
)


@dg.op(
    out=NOTHING,
    description="Fires every task whose time passed three or more minutes ago, and the last firing that each job "
    "missed: one run each. Whatever fired meanwhile is executed once all the same.",
)
def fire_what_is_late(context: dg.OpExecutionContext, sumaclock: dg.ResourceParam[Sumaclock]) -> None:
    from sumaclock_dagster.reconcile.heartbeat import beat
    from sumaclock_dagster.reconcile.reasons import why_late, why_missed

    with sumaclock.connect("heartbeat") as app:
        done = beat(app, sumaclock.settings.retention_days)
        # At once: what is fired now hides which clock jobs were silent.
        faults = look_for_faults(sumaclock) if done.tasks or done.jobs else []
        with open_clock(app, sumaclock.settings.cron_url, sumaclock.settings.clock) as clock:
            reasons = why_late(app, clock, done.tasks, faults) | why_missed(app, done.jobs, faults)
    if not done.looked:
        context.log.info("Another heartbeat is at work.")
    rows = [_late_task(task, reasons.get(task.task_id, "")) for task in done.tasks[:LISTED]]
    for row in rows:
        context.log.warning(f"Task {row['what']} was due at {row['meant for (UTC)']} and fires now. {row['why']}")
    rows += [_missed(job, reasons.get(job.job_id, "")) for job in done.jobs[:LISTED]]
    context.add_output_metadata(
        {"late tasks": len(done.tasks), "missed firings": len(done.jobs), "fired": table(rows, LATE_COLUMNS)}
    )


@dg.job(
    name="heartbeat",
    executor_def=dg.in_process_executor,
    description="Fires what the clock missed: once, late, with the key that its firing would have had.",
)
def heartbeat_job() -> None:
    fire_what_is_late()


@dg.schedule(
    job=heartbeat_job,
    name="heartbeat",
    cron_schedule="*/2 * * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every two minutes: looks for what the clock missed. Launches nothing when there is nothing.",
)
def heartbeat_schedule(sumaclock: dg.ResourceParam[Sumaclock]) -> dg.RunRequest | dg.SkipReason:
    from sumaclock_dagster.reconcile.heartbeat import look_for_late

    with sumaclock.connect("heartbeat") as app:
        late = look_for_late(app, sumaclock.settings.retention_days)
    if late.tasks or late.jobs:
        return dg.RunRequest()
    return dg.SkipReason("No task is late by 3 minutes or more, and no job missed a firing.")


@dg.op(
    out=NOTHING,
    description="Mends all drift, lets workers place the tasks that none is about to place and those that other zone "
    "data placed, and reports Dagster runs as failed whose worker is gone.",
)
def mend(context: dg.OpExecutionContext, sumaclock: dg.ResourceParam[Sumaclock]) -> None:
    from sumaclock_dagster.reconcile.repair import repair

    with both_sides(sumaclock, "repair") as (app, clock):
        # Dagster's side first: it needs no pg_cron.
        gone = find_gone(context.instance, app)
        for run in gone:
            context.instance.report_run_failed(run, GONE)
            context.log.warning(f"Dagster run {run.run_id} is reported as failed: its worker is gone.")
        done = repair(app, clock, say=context.log.info)
    context.add_output_metadata(
        {
            **sync_numbers(done.sync),
            "tasks left half-way": done.unplaced,
            "tasks placed by other zone data": done.other_zone_data,
            "Dagster runs without worker": len(gone),
        }
    )


@dg.job(
    name="repair",
    executor_def=dg.in_process_executor,
    description="Finishes what was left half-way: clock jobs, placements, Dagster runs of workers that are gone.",
)
def repair_job() -> None:
    mend()


@dg.schedule(
    job=repair_job,
    name="repair",
    cron_schedule="11 * * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every hour: looks for drift, for tasks that nobody places, and for Dagster runs whose worker is gone. "
    "Launches nothing when all is well.",
)
def repair_schedule(
    context: dg.ScheduleEvaluationContext, sumaclock: dg.ResourceParam[Sumaclock]
) -> dg.RunRequest | dg.SkipReason:
    from sumaclock_dagster.reconcile.drift import count_by_kind
    from sumaclock_dagster.reconcile.repair import look_for_damage

    with both_sides(sumaclock, "repair") as (app, clock):
        gone = find_gone(context.instance, app)
        damage = look_for_damage(app, clock)
    if damage.is_none and not gone:
        return dg.SkipReason("No drift, no task to be placed, no Dagster run without its worker.")
    context.log.info(
        f"To mend: drift ({in_words(count_by_kind(damage.drift)) or 'none'}), {damage.unplaced} tasks left half-way, "
        f"{damage.other_zone_data} placed by other zone data, {len(gone)} Dagster runs without worker."
    )
    return dg.RunRequest()


def find_gone(instance: dg.DagsterInstance, app: Connection) -> list[dg.DagsterRun]:
    """Dagster runs of the job `work` that Dagster thinks alive and whose worker is gone, or never came."""
    before = datetime.fromtimestamp(read_clock(app), UTC) - START
    alive = instance.get_runs(dg.RunsFilter(job_name="work", statuses=ALIVE, created_before=before))
    if not alive:
        return []
    gone = gone_dagster_runs(app, [run.run_id for run in alive])
    return [run for run in alive if run.run_id in gone]


LATE_COLUMNS = {
    "what": "string",
    "meant for (UTC)": "string",
    "late (s)": "float",
    "why": "string",
    "run": "int",
    "id": "string",
}


def _late_task(task: "LateTask", why: str) -> dict[str, Any]:
    return _row(
        (task.title or str(task.task_id), task.scheduled_at, task.late_seconds, why, task.run_id, task.task_id.hex)
    )


def _missed(job: "MissedFiring", reason: str) -> dict[str, Any]:
    why = f"Skipped: its catch-up policy is none. {reason}" if job.status == "skipped" else reason
    return _row((f"job of kind {job.kind}", job.scheduled_at, job.late_seconds, why, job.run_id, job.job_id.hex))


def _row(values: Sequence[Any]) -> dict[str, Any]:
    row = dict(zip(LATE_COLUMNS, values, strict=True))
    return row | {"meant for (UTC)": f"{row['meant for (UTC)']:%Y-%m-%d %H:%M}", "late (s)": round(row["late (s)"], 1)}
