"""Jobs for people: pause, resume and run a task, by its id in the Launchpad."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

import dagster as dg
from pydantic import Field

from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock
from sumaclock_dagster.model import Run, RunStatus, SumaclockError
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import Task
from sumaclock_dagster.tasks.waiting import await_placed, await_run, is_to_be_placed, why_it_waits

PLACED_SECONDS = 10.0
ENDED_SECONDS = 120.0
WRITE_HERE = "write the task's id here"
WHERE = "It is in the asset upcoming_firings, column 'task id', and in `sumaclock tasks list`."
NOTHING = dg.Out(dg.Nothing, io_manager_key=OWN_IO_KEY, description="What became of the task is in the metadata.")


class TaskConfig(dg.Config):
    """Which task."""

    task_id: str = Field(description=f"Id of the task, for example 123e4567-e89b-12d3-a456-426614174000. {WHERE}")


class PauseConfig(TaskConfig):
    """Which task, and why."""

    reason: str = Field("", description="Why it is paused, for those who look at it; may be empty.")


@dg.op(out=NOTHING, description="Stops the task's firings until it is resumed. Its history stays.")
def pause(context: dg.OpExecutionContext, config: PauseConfig, sumaclock: dg.ResourceParam[Sumaclock]) -> None:
    with clear_refusals(), sumaclock.connect("task") as conn:
        task_id = task_id_of(config.task_id)
        api.pause(conn, task_id, config.reason or None)
        _tell(context, api.get(conn, task_id))


@dg.op(
    out=NOTHING,
    description="Lets a paused or failed task fire again, computed from now: what it missed stays missed.",
)
def resume(context: dg.OpExecutionContext, config: TaskConfig, sumaclock: dg.ResourceParam[Sumaclock]) -> None:
    with clear_refusals(), sumaclock.connect("task") as conn:
        task_id = task_id_of(config.task_id)
        api.resume(conn, task_id)
        task = await_placed(conn, task_id, PLACED_SECONDS)
        _tell(context, task)
        if is_to_be_placed(task):
            context.log.warning(f"The task is active and not placed yet. {why_it_waits(conn)}")


@dg.op(
    out=NOTHING,
    description="Runs the task once, whatever its status, and waits up to two minutes for the end. Its schedule does "
    "not move.",
)
def run_now(context: dg.OpExecutionContext, config: TaskConfig, sumaclock: dg.ResourceParam[Sumaclock]) -> None:
    with clear_refusals(), sumaclock.connect("task") as conn:
        task_id = task_id_of(config.task_id)
        run = await_run(conn, api.run_now(conn, task_id), ENDED_SECONDS)
        _tell(context, api.get(conn, task_id), run)
        if run.finished_at is None:
            context.log.warning(f"Run {run.id} has not ended after {ENDED_SECONDS:.0f} s. {why_it_waits(conn, run)}")
    if run.status is RunStatus.FAILED:
        raise dg.Failure(f"Run {run.id} of task {task_id} failed: {run.error}", allow_retries=False)


@dg.job(
    config=dg.RunConfig(ops={"pause": PauseConfig(task_id=WRITE_HERE, reason="")}),
    executor_def=dg.in_process_executor,
    description=f"Pauses a task: write its id in the Launchpad. {WHERE}",
)
def pause_task() -> None:
    pause()


@dg.job(
    config=dg.RunConfig(ops={"resume": TaskConfig(task_id=WRITE_HERE)}),
    executor_def=dg.in_process_executor,
    description=f"Resumes a task: write its id in the Launchpad. {WHERE}",
)
def resume_task() -> None:
    resume()


@dg.job(
    config=dg.RunConfig(ops={"run_now": TaskConfig(task_id=WRITE_HERE)}),
    executor_def=dg.in_process_executor,
    description=f"Runs a task once, now: write its id in the Launchpad. {WHERE}",
)
def run_task_now() -> None:
    run_now()


@contextmanager
def clear_refusals(metadata: Mapping[str, str] | None = None) -> Iterator[None]:
    """A refusal is what people read first, and trying again would not change it. `metadata`: beside it."""
    try:
        yield
    except SumaclockError as error:
        raise dg.Failure(str(error), metadata=metadata, allow_retries=False) from None


def task_id_of(text: str) -> UUID:
    try:
        return UUID(text.strip())
    except ValueError:
        raise SumaclockError(f"task_id {text[:100]!r} is no id of a task. {WHERE}") from None


def _tell(context: dg.OpExecutionContext, task: Task, run: Run | None = None) -> None:
    metadata: dict[str, dg.MetadataValue | str] = {
        "task": task.title or str(task.id),
        "kind": task.kind,
        "owner": f"{task.organization_id}/{task.user_id}",
        "status": f"{task.status.value}{f': {task.status_reason}' if task.status_reason else ''}",
        "fires next (UTC)": f"{task.next_run_at:%Y-%m-%d %H:%M}" if task.next_run_at else "never, or not known yet",
    }
    if run is not None:
        metadata |= {"run": f"{run.id}: {run.status.value}", "result": json.dumps(run.result), "error": run.error or ""}
        if run.dagster_run_id:
            metadata["executed in"] = dg.MetadataValue.dagster_run(str(run.dagster_run_id))
    context.add_output_metadata(metadata)
    context.log.info("; ".join(f"{name}: {value}" for name, value in metadata.items() if isinstance(value, str)))
