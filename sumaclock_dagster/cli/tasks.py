"""`sumaclock tasks`: create, look at and change what people asked for, in their own time."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import click

from sumaclock_dagster.calendar import DEFAULT_TIMEZONE
from sumaclock_dagster.cli.output import (
    app_session,
    clock_session,
    find_firing,
    json_option,
    print_json,
    read_payload,
    tell_limit,
)
from sumaclock_dagster.cli.records import clock_job_record
from sumaclock_dagster.cli.refusals import RefusingGroup
from sumaclock_dagster.cli.task_answers import confirm_delete, tell_run, tell_task
from sumaclock_dagster.cli.task_options import language_option, moment_in, schedule_options
from sumaclock_dagster.cli.task_preview import preview
from sumaclock_dagster.cli.task_records import occurrence_record, task_record, task_run_record
from sumaclock_dagster.cli.task_views import print_task, print_task_runs, print_tasks, task_clock_words
from sumaclock_dagster.clock.jobs import get_job
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import TaskStatus

LAST_RUNS = 5
SHOWN_OCCURRENCES = 5


@click.group(cls=RefusingGroup)
def tasks() -> None:
    """Tasks: what people asked for, in their own local time."""


@tasks.command()
@click.option("--kind", required=True, help="What it does: 'log', 'core_api' or a task kind of yours.")
@click.option("--org", "organization_id", required=True, help="Organization id of the owner.")
@click.option("--user", "user_id", required=True, help="User id of the owner.")
@click.option("--title", default="", help="What people call it.")
@schedule_options
@click.option("--payload", default="{}", show_default=True, help="JSON for the kind; @FILE or - (stdin) reads it.")
@language_option
@json_option
def add(
    kind: str,
    organization_id: str,
    user_id: str,
    title: str,
    cron: str | None,
    at: datetime | None,
    timezone: str | None,
    payload: str,
    language: str,
    as_json: bool,
) -> None:
    """Create a task, and wait up to 2 s for a worker to place it."""
    if (cron is None) == (at is None):
        raise click.UsageError("Give either --cron '0 9 * * MON' or --at '2026-12-01 09:00'.")
    zone = timezone or DEFAULT_TIMEZONE
    parsed = read_payload(payload)
    with app_session() as app:
        task_id = api.create(
            app,
            organization_id=organization_id,
            user_id=user_id,
            kind=kind,
            title=title,
            payload=parsed,
            cron=cron,
            instant=moment_in(at, zone),
            timezone=zone,
        )
        tell_task(app, task_id, "created", language, as_json)


@tasks.command("list")
@click.option("--org", "organization_id", help="Only of this organization.")
@click.option("--user", "user_id", help="Only of this user.")
@click.option("--kind", help="Only of this kind.")
@click.option("--status", type=click.Choice([status.value for status in TaskStatus]), help="Only with this status.")
@click.option("--deleted", is_flag=True, help="Those that were deleted, instead of the others.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@language_option
@json_option
def list_(
    organization_id: str | None,
    user_id: str | None,
    kind: str | None,
    status: str | None,
    deleted: bool,
    limit: int,
    language: str,
    as_json: bool,
) -> None:
    """List tasks, newest first. Times are local and UTC."""
    with app_session() as app:
        found = api.list_tasks(
            app,
            organization_id=organization_id,
            user_id=user_id,
            kind=kind,
            status=TaskStatus(status) if status else None,
            deleted=deleted,
            limit=limit,
        )
    if as_json:
        print_json([task_record(task, language) for task in found])
    else:
        print_tasks(found)
    tell_limit(found, limit)


@tasks.command()
@click.argument("task_id", type=click.UUID)
@language_option
@json_option
def show(task_id: UUID, language: str, as_json: bool) -> None:
    """Show a task with its occurrences, clock job and task runs."""
    with clock_session() as (app, clock):
        task = api.get(app, task_id)
        job = get_job(app, task.cron_job_id)
        firing = find_firing(app, clock, job)
        lines = [] if task.deleted_at else api.preview(app, task_id, SHOWN_OCCURRENCES)
        runs = api.list_task_runs(app, task_id, LAST_RUNS)
    if as_json:
        record = {
            "clock_job": clock_job_record(firing.clock_job) if firing.clock_job else None,
            "clock_error": firing.fault,
            "upcoming": [occurrence_record(line) for line in lines],
            "last_runs": [task_run_record(run) for run in runs],
        }
        print_json(task_record(task, language) | record)
    else:
        print_task(task, language, task_clock_words(task, job, firing), lines)
        print_task_runs(runs, task.timezone)


@tasks.command()
@click.argument("task_id", type=click.UUID)
@click.option("--kind", help="What it does.")
@click.option("--title", help="What people call it.")
@schedule_options
@click.option("--payload", help="JSON for the kind; @FILE or - (stdin) reads it.")
@language_option
@json_option
def edit(
    task_id: UUID,
    kind: str | None,
    title: str | None,
    cron: str | None,
    at: datetime | None,
    timezone: str | None,
    payload: str | None,
    language: str,
    as_json: bool,
) -> None:
    """Change what is given and leave the rest. A new schedule is computed from now."""
    if {kind, title, cron, at, timezone, payload} == {None}:
        raise click.UsageError("Nothing to change: give --kind, --title, --cron, --at, --timezone or --payload.")
    if cron is not None and at is not None:
        raise click.UsageError("A task has either --cron or --at.")
    parsed = ... if payload is None else read_payload(payload)
    with app_session() as app:
        instant = moment_in(at, timezone or api.get(app, task_id).timezone) if at else None
        api.update(app, task_id, kind=kind, title=title, payload=parsed, cron=cron, instant=instant, timezone=timezone)
        placing = {cron, at, timezone} != {None}
        tell_task(app, task_id, "changed", language, as_json, placing=placing)


@tasks.command()
@click.argument("task_id", type=click.UUID)
@click.option("--reason", help="Why, for those who look at the task.")
@language_option
@json_option
def pause(task_id: UUID, reason: str | None, language: str, as_json: bool) -> None:
    """Stop a task's firings until it is resumed."""
    with app_session() as app:
        api.pause(app, task_id, reason)
        tell_task(app, task_id, "paused", language, as_json)


@tasks.command()
@click.argument("task_id", type=click.UUID)
@language_option
@json_option
def resume(task_id: UUID, language: str, as_json: bool) -> None:
    """Let a paused or failed task fire again. What it missed stays missed."""
    with app_session() as app:
        api.resume(app, task_id)
        tell_task(app, task_id, "resumed", language, as_json)


@tasks.command()
@click.argument("task_id", type=click.UUID)
@click.option("--yes", is_flag=True, help="Do not ask.")
@language_option
@json_option
def delete(task_id: UUID, yes: bool, language: str, as_json: bool) -> None:
    """End a task for good. Its task runs stay as history."""
    with app_session() as app:
        if not yes:
            confirm_delete(api.get(app, task_id), language)
        api.delete(app, task_id)
        task = api.get(app, task_id)
    if as_json:
        print_json(task_record(task, language))
    else:
        click.echo(f"Task {task_id} is deleted; its task runs stay (`sumaclock tasks show {task_id}`).")


@tasks.command("run")
@click.argument("task_id", type=click.UUID)
@json_option
def run_(task_id: UUID, as_json: bool) -> None:
    """Run a task now. Its schedule does not move. Waits up to 2 s for the end."""
    with app_session() as app:
        tell_run(app, api.run_now(app, task_id), as_json)


tasks.add_command(preview)
