"""What the commands that change tasks answer, and ask."""

from __future__ import annotations

from uuid import UUID

import click

from sumaclock_dagster.cli.output import console, duration, plain, print_json
from sumaclock_dagster.cli.records import run_record, seconds_between
from sumaclock_dagster.cli.task_records import task_record, words
from sumaclock_dagster.cli.task_views import next_sentence
from sumaclock_dagster.db import Connection
from sumaclock_dagster.model import Run, RunStatus, SumaclockError
from sumaclock_dagster.tasks.records import Task, TaskStatus
from sumaclock_dagster.tasks.waiting import await_placed, await_run, is_to_be_placed, why_it_waits

SETTLED_SECONDS = 2.0


def tell_task(app: Connection, task_id: UUID, done: str, language: str, as_json: bool, *, placing: bool = True) -> None:
    """The task as it is once a worker has come to it. Exits with 1 where it could not be placed."""
    task = await_placed(app, task_id, SETTLED_SECONDS)
    reason = why_it_waits(app) if is_to_be_placed(task) else None
    if as_json:
        print_json(task_record(task, language))
    else:
        text = f"Task {task.id} is {done}: {words(task, language) or 'its schedule does not resolve'}."
        console().print(plain(f"{text}\n{next_sentence(task)}"), soft_wrap=True)
    if reason:
        click.echo(f"Not placed yet. {reason}", err=True)
    if task.status is TaskStatus.FAILED and placing:
        raise SumaclockError(f"The task failed: {task.status_reason}")


def tell_run(app: Connection, run_id: int, as_json: bool) -> None:
    """The run once it has ended, or what keeps it waiting. Exits with 1 where it failed."""
    run = await_run(app, run_id, SETTLED_SECONDS)
    reason = why_it_waits(app, run) if run.finished_at is None else None
    if as_json:
        print_json(run_record(run))
    elif run.status is not RunStatus.FAILED:
        console().print(plain(_run_words(run)), soft_wrap=True)
    if reason:
        click.echo(f"{reason} `sumaclock runs show {run.id}` tells what became of it.", err=True)
    if run.status is RunStatus.FAILED:
        raise SumaclockError(_run_words(run))


def confirm_delete(task: Task, language: str) -> None:
    text = (
        f"Task {task.id} {task.title!r} of kind {task.kind!r}, owner {task.organization_id!r} / {task.user_id!r}, "
        f"{words(task, language)}, ends for good. Its task runs stay."
    )
    click.echo(plain(text).plain, err=True)
    click.confirm("Delete it?", abort=True, err=True)


def _run_words(run: Run) -> str:
    if run.finished_at is None:
        return f"Run {run.id} is {run.status.value}."
    took = duration(seconds_between(run.started_at, run.finished_at))
    error = f": {run.error}" if run.error else "."
    return f"Run {run.id} is {run.status.value} after {took}{error}"
