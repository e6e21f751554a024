"""The job `edit_schedules`: from the Launchpad a person creates, edits, pauses, resumes and deletes a schedule."""

from datetime import datetime
from typing import Any
from uuid import UUID

import dagster as dg

from sumaclock_dagster.calendar import ClockChange, PreviewLine, in_words, instant_at, parse_schedule, preview
from sumaclock_dagster.clock.jobs import database_time
from sumaclock_dagster.db import Connection
from sumaclock_dagster.defs.metadata import table, unbroken
from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock
from sumaclock_dagster.defs.schedule_config import (
    EXAMPLE,
    HOW,
    AsBefore,
    Create,
    Delete,
    Edit,
    EditSchedules,
    Pause,
)
from sumaclock_dagster.defs.schedule_targets import kind_and_payload, what_runs
from sumaclock_dagster.defs.task_jobs import clear_refusals, task_id_of
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import Task, TaskStatus
from sumaclock_dagster.tasks.waiting import await_placed, is_to_be_placed, why_it_waits

PLACED_SECONDS = 10.0
SHOWN_OCCURRENCES = 5
OCCURRENCE_COLUMNS = {"local time": "string", "UTC": "string", "clock change": "string"}


@dg.op(
    out=dg.Out(dg.Nothing, io_manager_key=OWN_IO_KEY, description="What became of it is in the metadata."),
    description="One change of one schedule. Its metadata say what it is in words and when it fires next.",
)
def edit_schedule(
    context: dg.OpExecutionContext, config: EditSchedules, sumaclock: dg.ResourceParam[Sumaclock]
) -> None:
    wanted = config.schedule
    with clear_refusals({"change": wanted.change}), sumaclock.connect("edit schedules") as conn:
        task_id = _change(conn, wanted, context)
        context.add_output_metadata({"task id": str(task_id), "change": wanted.change})
        task = await_placed(conn, task_id, PLACED_SECONDS)
        _tell(context, conn, task)
        if is_to_be_placed(task):
            context.log.warning(f"The schedule is kept and not placed yet. {why_it_waits(conn)}")
        if task.status is TaskStatus.FAILED:
            raise SumaclockError(f"Task {task.id} can't be placed: {task.status_reason}")


@dg.job(
    config={"ops": {"edit_schedule": {"config": EXAMPLE}}},
    executor_def=dg.in_process_executor,
    description=HOW,
)
def edit_schedules() -> None:
    edit_schedule()


def _change(conn: Connection, wanted: Any, context: dg.OpExecutionContext) -> UUID:
    if isinstance(wanted, Create):
        return _create(conn, wanted, context)
    task_id = task_id_of(wanted.task_id)
    if isinstance(wanted, Edit):
        _edit(conn, task_id, wanted, context)
    elif isinstance(wanted, Pause):
        api.pause(conn, task_id, wanted.reason or None)
    elif isinstance(wanted, Delete):
        api.delete(conn, task_id)
    else:
        api.resume(conn, task_id)
    return task_id


def _create(conn: Connection, wanted: Create, context: dg.OpExecutionContext) -> UUID:
    kind, payload = kind_and_payload(wanted.runs, context.repository_def)
    return api.create(
        conn,
        organization_id=wanted.organization_id,
        user_id=wanted.user_id,
        kind=kind,
        title=wanted.title,
        payload=payload,
        cron=wanted.cron or None,
        instant=_instant(wanted.instant, wanted.timezone),
        timezone=wanted.timezone,
    )


def _edit(conn: Connection, task_id: UUID, wanted: Edit, context: dg.OpExecutionContext) -> None:
    if wanted.cron and wanted.instant:
        raise SumaclockError("Both cron and instant are given: leave one of them empty.")
    zone = wanted.timezone or api.get(conn, task_id).timezone
    changes: dict[str, Any] = {"title": wanted.title or None, "cron": wanted.cron or None}
    changes |= {"instant": _instant(wanted.instant, zone), "timezone": wanted.timezone or None}
    if not isinstance(wanted.runs, AsBefore):
        changes["kind"], changes["payload"] = kind_and_payload(wanted.runs, context.repository_def)
    if all(value is None for value in changes.values()):
        raise SumaclockError("Nothing to change: write a title, cron, instant, timezone or what it runs.")
    api.update(conn, task_id, **changes)


def _instant(text: str, timezone: str) -> datetime | None:
    """The aware moment: on the clocks of `timezone` where the text has no offset. None for no text."""
    if not text.strip():
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise SumaclockError(
            f"instant {text!r} is no date and time; write for example 2026-12-01 09:00 or 2026-12-01T09:00+01:00."
        ) from None
    return moment if moment.tzinfo else instant_at(moment, timezone)


def _tell(context: dg.OpExecutionContext, conn: Connection, task: Task) -> None:
    schedule = parse_schedule(task.cron, task.instant, task.timezone)
    words = in_words(schedule, "en")
    fires = task.status is TaskStatus.ACTIVE and task.deleted_at is None
    lines = preview(schedule, database_time(conn), SHOWN_OCCURRENCES) if fires else []
    status = "deleted" if task.deleted_at else task.status.value
    said = {
        "runs": what_runs(task.kind, task.payload),
        "status": f"{status}: {task.status_reason}" if task.status_reason else status,
    }
    context.add_output_metadata(
        {
            "schedule": words,
            "fires next": table([_occurrence(line) for line in lines], OCCURRENCE_COLUMNS),
            **said,
            "title": task.title or "(none)",
            "owner": f"{task.organization_id}/{task.user_id}",
        }
    )
    nearest = f" It fires next at {_local(lines[0])}, {lines[0].occurrence:%Y-%m-%d %H:%M} UTC." if lines else ""
    context.log.info(f"Task {task.id} is {said['status']}: {words}, {said['runs']}.{nearest}")


def _occurrence(line: PreviewLine) -> dict[str, str]:
    change = "" if line.change is ClockChange.NONE else line.change.value
    values = (_local(line), unbroken(f"{line.occurrence:%a %d %b %Y %H:%M}"), change)
    return dict(zip(OCCURRENCE_COLUMNS, values, strict=True))


def _local(line: PreviewLine) -> str:
    return unbroken(f"{line.local:%a %d %b %Y %H:%M} {line.local.isoformat()[-6:]}")
