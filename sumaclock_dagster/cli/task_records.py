"""Tasks as --json prints them. The names are stable: scripts rely on them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from sumaclock_dagster.calendar import ClockChange, LocalSchedule, PreviewLine, in_words, parse_schedule
from sumaclock_dagster.calendar.zones import zone_named
from sumaclock_dagster.cli.records import iso, seconds_between
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.tasks.records import Task, TaskRunRow, Upcoming


def task_record(task: Task, language: str) -> dict[str, Any]:
    """A task for --json. `words`: its schedule, null where it does not resolve. `next_run_local` has an offset."""
    return {
        "id": str(task.id),
        "organization_id": task.organization_id,
        "user_id": task.user_id,
        "kind": task.kind,
        "title": task.title,
        "payload": task.payload,
        "cron": task.cron,
        "instant": iso(task.instant),
        "timezone": task.timezone,
        "words": words(task, language),
        "status": task.status.value,
        "status_reason": task.status_reason,
        "next_run_at": iso(task.next_run_at),
        "next_run_local": local_iso(task.next_run_at, task.timezone),
        "last_scheduled_for": iso(task.last_scheduled_for),
        "cron_job_id": str(task.cron_job_id),
        "deleted_at": iso(task.deleted_at),
        "created_at": iso(task.created_at),
        "updated_at": iso(task.updated_at),
    }


def task_run_record(run: TaskRunRow) -> dict[str, Any]:
    """A task run for --json. Lateness and duration are seconds."""
    return {
        "id": run.id,
        "scheduled_for": iso(run.scheduled_for),
        "trigger": run.trigger.value,
        "status": run.status,
        "started_at": iso(run.started_at),
        "finished_at": iso(run.finished_at),
        "lateness_seconds": seconds_between(run.scheduled_for, run.started_at),
        "duration_seconds": seconds_between(run.started_at, run.finished_at),
        "cron_run_id": run.cron_run_id,
        "idempotency_key": run.idempotency_key,
        "result": run.result,
        "error": run.error,
    }


def occurrence_record(line: Upcoming) -> dict[str, Any]:
    """One line of a preview. `change`: what a clock change does to it, or null."""
    return {"at": iso(line.occurrence), "local": line.local, "change": line.change}


def upcoming(lines: Sequence[PreviewLine]) -> list[Upcoming]:
    """Lines of the calendar in the form in which a task keeps its own."""
    return [
        Upcoming(
            line.occurrence,
            line.local.isoformat(timespec="minutes"),
            None if line.change is ClockChange.NONE else line.change.value,
        )
        for line in lines
    ]


def words(of: Task | LocalSchedule, language: str) -> str | None:
    """The schedule in words, or None where it does not resolve any more."""
    try:
        return in_words(parse_schedule(of.cron, of.instant, of.timezone), language)
    except SumaclockError:
        return None


def local_time(moment: datetime, zone: str) -> datetime | None:
    """The moment in the named zone, aware by its plain offset; None where there is no such zone any more."""
    try:
        local = moment.astimezone(zone_named(zone))
    except SumaclockError:
        return None
    return local.replace(tzinfo=timezone(local.utcoffset() or timedelta(0)), fold=0)


def local_iso(moment: datetime | None, zone: str) -> str | None:
    local = local_time(moment, zone) if moment else None
    return local.isoformat(timespec="minutes") if local else None
