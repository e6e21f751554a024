"""Settling a task: one transaction that does what is to be done about it now, whatever happened to it before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sumaclock_dagster.calendar import LocalSchedule, parse_schedule, zone_data_version
from sumaclock_dagster.db import Connection
from sumaclock_dagster.handlers import HandlerRun
from sumaclock_dagster.model import Done, Failed, Handed, Outcome, RunTrigger, Skip, SumaclockError
from sumaclock_dagster.tasks.access import AccessCheck, refusal
from sumaclock_dagster.tasks.execute import Executed, Work, execute
from sumaclock_dagster.tasks.kinds import TaskKinds
from sumaclock_dagster.tasks.locked import TRIGGERS, Locked, lock_and_read, move, record, shown, stop
from sumaclock_dagster.tasks.placement import Placement, placement_after, placement_of_instant

NO_MORE = "There is no further occurrence."


@dataclass(frozen=True, slots=True)
class Rules:
    """What settling goes by besides the task itself. `access_check`: the app's hook, if it has one."""

    kinds: TaskKinds
    access_check: AccessCheck | None
    result_max_bytes: int


@dataclass(frozen=True, slots=True)
class Case:
    """One run, the task that it is about, and the transaction that holds its lock. `instead`: what to record in place
    of executing the kind, which then ran before."""

    conn: Connection
    run: HandlerRun
    task: Locked
    rules: Rules
    instead: Executed | None = None


def settle(conn: Connection, run: HandlerRun, rules: Rules, instead: Executed | None = None) -> Outcome:
    """Settle the task of the run's job, and return the run's outcome.

    Raises TryAgain and TransactionEnded with everything rolled back, psycopg.Error, and what the access hook raises.
    """
    with conn.transaction():
        task = lock_and_read(conn, run)
        if task is None:
            return Failed(f"No task belongs to job {run.job_id}. Delete the job: `sumaclock jobs delete {run.job_id}`.")
        if task.deleted:
            return _nothing(run, "The task was deleted.")
        case = Case(conn, run, task, rules, instead)
        if run.trigger == RunTrigger.MANUAL and not _is_awaited(task, run):
            return _by_hand(case)
        if task.mine_status is not None:
            # It fired before, and was cut off before its clock job had moved or its outcome was written, or before it
            # was handed over.
            return _outcome(task.mine_status, task.mine_error, {"fired": "at an earlier attempt"})
        return _by_schedule(case)


def _is_awaited(task: Locked, run: HandlerRun) -> bool:
    """Whether a run that was tried again by hand is the firing that the task waits for."""
    return task.status == "active" and task.next_run_at == run.scheduled_at and run.scheduled_at <= task.now


def _by_hand(case: Case) -> Outcome:
    """One task run besides the schedule. One that failed or was skipped is executed again when its run is."""
    task, moment = case.task, case.run.scheduled_at
    if task.asked_status in ("done", "running"):
        return _outcome(task.asked_status, None, {"fired": "at an earlier attempt"})
    executed, refused = _checked_and_executed(case, moment)
    record(case.conn, case.run, task, moment, executed)
    if refused and task.status == "active":
        stop(case.conn, task, "paused", executed.error)
    return _outcome(executed.status, executed.error, {})


def _by_schedule(case: Case) -> Outcome:
    """What the task's schedule asks for now: place it, fire it, or neither."""
    task, run = case.task, case.run
    if task.status != "active":
        return _nothing(run, f"The task is {task.status}.")
    try:
        schedule = parse_schedule(task.cron, task.instant, task.timezone)
        placement = _new_placement(task, schedule)
    except SumaclockError as error:
        # Never placed: it was wrong from the start. Otherwise the zone data changed under it (rule 13).
        stop(case.conn, task, "failed" if task.zone_data is None else "paused", str(error))
        return Failed(str(error))
    occurrence = placement.occurrence if placement else task.next_run_at
    if occurrence is None:
        stop(case.conn, task, "done", NO_MORE)
        return _nothing(run, NO_MORE)
    if occurrence <= task.now:
        return _fire(case, schedule, occurrence)
    if placement:
        move(case.conn, task, placement)
    return _not_due(run, occurrence)


def _new_placement(task: Locked, schedule: LocalSchedule) -> Placement | None:
    """Where the task has no next occurrence, or one to come that other zone data told; else None."""
    standing = task.next_run_at
    if standing is not None and (standing <= task.now or task.zone_data == zone_data_version()):
        return None
    return placement_after(schedule, task.now) if schedule.cron else placement_of_instant(schedule)


def _fire(case: Case, schedule: LocalSchedule, occurrence: datetime) -> Outcome:
    """Execute the occurrence once, and place the task on the one after now: several that were missed are one."""
    task = case.task
    if task.next_status in ("done", "running"):
        executed = None
    else:
        executed, refused = _checked_and_executed(case, occurrence)
        record(case.conn, case.run, task, occurrence, executed)
        if refused:
            stop(case.conn, task, "paused", executed.error, occurrence)
            return Skip(executed.error or "")
    following = placement_after(schedule, max(task.now, occurrence)) if schedule.cron else None
    if following:
        move(case.conn, task, following, occurrence)
    elif executed and executed.status == "failed" and not schedule.cron:
        stop(case.conn, task, "failed", (executed.error or "").partition("\n")[0], occurrence)
    else:
        stop(case.conn, task, "done", NO_MORE if schedule.cron else None, occurrence)
    if executed is None:
        return _nothing(case.run, f"The occurrence of {shown(occurrence)} was executed before.")
    return _outcome(executed.status, executed.error, {"next_run_at": following and shown(following.occurrence)})


def _checked_and_executed(case: Case, scheduled_for: datetime) -> tuple[Executed, bool]:
    """How the kind ended, and whether it was not executed because the owner has no access."""
    task, rules = case.task, case.rules
    if case.instead is not None:
        return case.instead, False
    refused = refusal(case.conn, rules.access_check, task.organization_id, task.user_id)
    if refused is not None:
        return Executed("skipped", error=refused), True
    work = Work(
        task_id=task.id,
        kind=task.kind,
        title=task.title,
        payload=task.payload,
        organization_id=task.organization_id,
        user_id=task.user_id,
        timezone=task.timezone,
        scheduled_for=scheduled_for,
        trigger=TRIGGERS[case.run.trigger],
    )
    return execute(case.conn, case.run, work, rules.kinds, rules.result_max_bytes), False


def _not_due(run: HandlerRun, occurrence: datetime) -> Outcome:
    """Never early (rule 8)."""
    if run.trigger == RunTrigger.REQUEST:
        return Done({"next_run_at": shown(occurrence)})
    return Skip(f"The task is not due before {shown(occurrence)}.")


def _nothing(run: HandlerRun, reason: str) -> Outcome:
    return Done({"nothing": reason}) if run.trigger == RunTrigger.REQUEST else Skip(reason)


def _outcome(status: str, error: str | None, result: dict[str, Any]) -> Outcome:
    match status:
        case "done":
            return Done(result)
        case "running":
            return Handed()
        case "skipped":
            return Skip(error or "")
        case _:
            return Failed(error or "")
