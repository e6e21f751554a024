"""Tasks as people read them: in the owner's local time with its offset, and in UTC."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from sumaclock_dagster.cli.output import Firing, console, duration, plain
from sumaclock_dagster.cli.records import seconds_between
from sumaclock_dagster.cli.task_records import local_time, words
from sumaclock_dagster.cli.views import STYLES, make_table
from sumaclock_dagster.clock.command import firing_command, slot_firing_command
from sumaclock_dagster.model import Job
from sumaclock_dagster.tasks.records import Task, TaskRunRow, TaskStatus, Upcoming

STATUS_STYLES = {"active": "green", "paused": "yellow", "done": "dim", "failed": "bold red"}
TO_BE_PLACED = "known as soon as a worker has placed it"


def print_tasks(tasks: Sequence[Task]) -> None:
    """One task in two lines: id, what, owner, schedule and zone, next occurrence in local time and in UTC."""
    if not tasks:
        console().print("No tasks. `sumaclock tasks add` creates one.")
        return
    table = make_table(
        TASK={"width": 36, "no_wrap": True},
        WHAT={"max_width": 12, "no_wrap": True},
        OWNER={"max_width": 10, "no_wrap": True},
        SCHEDULE={"max_width": 15, "no_wrap": True},
        **{"FIRES NEXT": {"width": 23, "no_wrap": True}},
    )
    for task in tasks:
        schedule = task.cron or "once"
        table.add_row(
            str(task.id),
            plain(f"{task.title or '(no title)'}\n{task.kind}"),
            plain(f"{task.organization_id}\n{task.user_id}"),
            plain(f"{schedule}\n{task.timezone}"),
            _next_in_table(task),
        )
    console().print(table)


def print_task(task: Task, language: str, clock: str, lines: Sequence[Upcoming]) -> None:
    """All about one task."""
    table = Table(box=None, pad_edge=False, show_header=False)
    reason = f": {task.status_reason}" if task.status_reason else ""
    for name, shown in (
        ("task", Text(str(task.id))),
        ("title", plain(task.title or "—")),
        ("kind", plain(task.kind)),
        ("owner", plain(f"{task.organization_id}/{task.user_id}")),
        ("schedule", plain(words(task, language) or "does not resolve")),
        ("cron", plain(f"{task.cron}  in {task.timezone}" if task.cron else "—")),
        ("status", plain("deleted" if task.deleted_at else f"{task.status.value}{reason}")),
        ("fires next", Text(next_words(task))),
        ("last fired", Text(both(task.last_scheduled_for, task.timezone))),
        ("clock job", plain(clock)),
        ("created", Text(both(task.created_at, task.timezone))),
        ("changed", Text(both(task.updated_at, task.timezone))),
        ("payload", plain(json.dumps(task.payload, indent=2, ensure_ascii=False))),
    ):
        table.add_row(Text(name, style="bold"), shown)
    console().print(table)
    if lines:
        console().print()
        print_occurrences(lines)
    console().print()


def print_occurrences(lines: Sequence[Upcoming]) -> None:
    """One occurrence a line: local time with its offset, UTC, and what a clock change does to it."""
    table = make_table(
        **{"LOCAL TIME": {"no_wrap": True}},
        UTC={"no_wrap": True},
        **{"CLOCK CHANGE": {"max_width": 48}},
    )
    for line in lines:
        local = datetime.fromisoformat(line.local)
        table.add_row(_local(local), f"{line.occurrence.astimezone(UTC):%Y-%m-%d %H:%M}", plain(line.change or ""))
    console().print(table)


def print_task_runs(runs: Sequence[TaskRunRow], zone: str) -> None:
    """One task run a row, with the beginning of its error."""
    if not runs:
        console().print("No task runs yet.")
        return
    table = make_table(
        **{"MEANT FOR": {"width": 23, "no_wrap": True}},
        TRIGGER={"no_wrap": True},
        STATUS={"no_wrap": True},
        LATE={"justify": "right", "no_wrap": True, "min_width": 6},
        TOOK={"justify": "right", "no_wrap": True, "min_width": 6},
        ERROR={"max_width": 36, "no_wrap": True},
    )
    for run in runs:
        table.add_row(
            two_lines(run.scheduled_for, zone),
            run.trigger.value,
            Text(run.status, style=STYLES[run.status]),
            duration(seconds_between(run.scheduled_for, run.started_at)),
            duration(seconds_between(run.started_at, run.finished_at)),
            plain((run.error or "").partition("\n")[0]),
        )
    console().print(table)


def next_words(task: Task) -> str:
    """When it fires next, or why it doesn't."""
    if task.deleted_at is not None:
        return "never: it is deleted"
    if task.status is not TaskStatus.ACTIVE:
        last = f", and fired last for {both(task.last_scheduled_for, task.timezone)}" if task.last_scheduled_for else ""
        return f"never: it is {task.status.value}{last}"
    return both(task.next_run_at, task.timezone) if task.next_run_at else TO_BE_PLACED


def next_sentence(task: Task) -> str:
    """The same as a sentence."""
    said = next_words(task)
    return f"Does not fire: {said.removeprefix('never: ')}." if said.startswith("never") else f"Fires next: {said}."


def task_clock_words(task: Task, job: Job, firing: Firing) -> str:
    """Whether pg_cron holds what the task's job says."""
    found = firing.clock_job
    fires = task.deleted_at is None and task.status is TaskStatus.ACTIVE and task.next_run_at is not None
    mending = "sumaclock drift --fix" if firing.in_slot else f"sumaclock tasks resume {task.id}"
    remedy = f"`{mending}` places it again"
    if firing.fault is not None:
        return f"unknown: {firing.fault}"
    if found is None:
        return f"MISSING: {remedy}" if fires else "none, as it does not fire"
    if not fires:
        return "left over: it goes when a worker comes to it, and fires for nothing until then"
    command = slot_firing_command(found.job_id) if firing.in_slot else firing_command(job.id)
    if (found.schedule, found.command) != (job.schedule, command) or not found.active:
        return f"DIFFERS from the task: {remedy}"
    return (
        f"in place: '{found.schedule}' in UTC (pg_cron jobid {found.jobid}{', of its slot' if firing.in_slot else ''})"
    )


def both(moment: datetime | None, zone: str) -> str:
    """Local time with its offset, then UTC; a dash for no time."""
    if moment is None:
        return "—"
    local = local_time(moment, zone)
    utc = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return utc if local is None else f"{_local(local)} = {utc}"


def two_lines(moment: datetime, zone: str) -> str:
    """The same on two lines, without the weekday."""
    local = local_time(moment, zone)
    utc = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return utc if local is None else f"{_local(local)[4:]}\n{utc}"


def _next_in_table(task: Task) -> Text:
    if task.deleted_at is not None:
        return Text("deleted", style="dim")
    if task.status is not TaskStatus.ACTIVE:
        return plain(f"{task.status.value}\n{task.status_reason or ''}".strip(), STATUS_STYLES[task.status.value])
    if task.next_run_at is None:
        return Text("soon: to be placed", style="yellow")
    return Text(two_lines(task.next_run_at, task.timezone))


def _local(moment: datetime) -> str:
    offset = moment.isoformat(timespec="minutes")[16:]
    return f"{moment:%a %Y-%m-%d %H:%M} {offset}"
