"""Settling a task: one transaction that does what is to be done about it now, whatever happened to it before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from sumaclock_dagster.calendar import LocalSchedule, parse_schedule, zone_data_version
from sumaclock_dagster.db import Connection
from sumaclock_dagster.handlers import HandlerRun
from sumaclock_dagster.model import Done, Failed, Handed, Outcome, RunTrigger, Skip, SumaclockError
from sumaclock_dagster.tasks.access import AccessCheck, Owner, refusal
from sumaclock_dagster.tasks.changes import Change, Move, Record, Stop, shown, write
from sumaclock_dagster.tasks.execute import Executed, Work, execute
from sumaclock_dagster.tasks.kinds import TaskKinds
from sumaclock_dagster.tasks.locked import Locked, lock_and_read
from sumaclock_dagster.tasks.placement import Placement, placement_after, placement_of_instant
from sumaclock_dagster.tasks.records import TaskTrigger

NO_MORE = "There is no further occurrence."
TRIGGERS = {
    RunTrigger.MANUAL.value: TaskTrigger.MANUAL,
    RunTrigger.CATCH_UP.value: TaskTrigger.HEARTBEAT,
    RunTrigger.CLOCK.value: TaskTrigger.CLOCK,
    # Due when it was requested: created, or placed so late that its clock job may have missed its minute.
    RunTrigger.REQUEST.value: TaskTrigger.CLOCK,
}


@dataclass(frozen=True, slots=True)
class Rules:
    """What settling goes by besides the task itself. `access_check`: the app's hook, if it has one."""

    kinds: TaskKinds
    access_check: AccessCheck | None
    result_max_bytes: int


@dataclass(frozen=True, slots=True)
class Case:
    """One run and the task that it is about, which is locked.

    read_at: when the task was read, in monotonic seconds.
    refusal: why the owner of the task has no access, or None.
    execute: executes the task's kind.
    """

    run: HandlerRun
    task: Locked
    read_at: float
    refusal: Callable[[Owner], str | None]
    execute: Callable[[HandlerRun, Work], Executed]

    def now(self) -> datetime:
        """By the database's clock."""
        return self.task.now + timedelta(seconds=monotonic() - self.read_at)


@dataclass(frozen=True, slots=True)
class Settled:
    """The run's outcome, and what is to be written in the transaction that holds the task's lock."""

    outcome: Outcome
    changes: tuple[Change, ...] = ()


def settle(conn: Connection, run: HandlerRun, rules: Rules, instead: Executed | None = None) -> Outcome:
    """Settle the task of the run's job, and return the run's outcome. `instead`: what to record in place of executing
    the kind, which then ran before.

    Raises TryAgain and TransactionEnded with everything rolled back, psycopg.Error, and what the access hook raises.
    """

    def refused(owner: Owner) -> str | None:
        return None if instead else refusal(conn, rules.access_check, owner)

    def executed(run: HandlerRun, work: Work) -> Executed:
        return instead or execute(conn, run, work, rules.kinds, rules.result_max_bytes)

    with conn.transaction():
        task = lock_and_read(conn, run)
        if task is None:
            return Failed(f"No task belongs to job {run.job_id}. Delete the job: `sumaclock jobs delete {run.job_id}`.")
        settled = decide(Case(run, task, monotonic(), refused, executed))
        write(conn, settled.changes)
    return settled.outcome


def decide(case: Case) -> Settled:
    """What is to become of the task and the run. Executes the task's kind where it is time."""
    task, run = case.task, case.run
    if task.deleted:
        return Settled(_nothing(run, "The task was deleted."))
    if run.trigger == RunTrigger.MANUAL and not _is_awaited(task, run):
        return _by_hand(case)
    if task.mine_status is not None:
        # It fired before, and was cut off before its clock job had moved or its outcome was written, or before it was
        # handed over.
        return Settled(_outcome(task.mine_status, task.mine_error, {"fired": "at an earlier attempt"}))
    return _by_schedule(case)


def _is_awaited(task: Locked, run: HandlerRun) -> bool:
    """Whether a run that was tried again by hand is the firing that the task waits for."""
    return task.status == "active" and task.next_run_at == run.scheduled_at and run.scheduled_at <= task.now


def _by_hand(case: Case) -> Settled:
    """One task run besides the schedule. One that failed or was skipped is executed again when its run is."""
    task = case.task
    if task.asked_status in ("done", "running"):
        return Settled(_outcome(task.asked_status, None, {"fired": "at an earlier attempt"}))
    record, refused = _checked_and_executed(case, case.run.scheduled_at)
    executed = record.executed
    outcome = _outcome(executed.status, executed.error, {})
    if refused and task.status == "active":
        return Settled(outcome, (record, Stop(task.id, "paused", executed.error)))
    return Settled(outcome, (record,))


def _by_schedule(case: Case) -> Settled:
    """What the task's schedule asks for now: place it, fire it, or neither."""
    task, run = case.task, case.run
    if task.status != "active":
        return Settled(_nothing(run, f"The task is {task.status}."))
    try:
        schedule = parse_schedule(task.cron, task.instant, task.timezone)
        placement = _new_placement(task, schedule)
    except SumaclockError as error:
        # Never placed: it was wrong from the start. Otherwise the zone data changed under it (rule 13).
        status = "failed" if task.zone_data is None else "paused"
        return Settled(Failed(str(error)), (Stop(task.id, status, str(error)),))
    occurrence = placement.occurrence if placement else task.next_run_at
    if occurrence is None:
        return Settled(_nothing(run, NO_MORE), (Stop(task.id, "done", NO_MORE),))
    if occurrence <= task.now:
        return _fire(case, schedule, occurrence)
    return Settled(_not_due(run, occurrence), (Move(task.id, placement),) if placement else ())


def _new_placement(task: Locked, schedule: LocalSchedule) -> Placement | None:
    """Where the task has no next occurrence, or one to come that other zone data told; else None."""
    standing = task.next_run_at
    if standing is not None and (standing <= task.now or task.zone_data == zone_data_version()):
        return None
    return placement_after(schedule, task.now) if schedule.cron else placement_of_instant(schedule)


def _fire(case: Case, schedule: LocalSchedule, occurrence: datetime) -> Settled:
    """Execute the occurrence once, and place the task on the one after now: several that were missed are one."""
    task = case.task
    following = placement_after(schedule, max(task.now, occurrence)) if schedule.cron else None
    if task.next_status in ("done", "running"):
        outcome = _nothing(case.run, f"The occurrence of {shown(occurrence)} was executed before.")
        return Settled(outcome, (_onwards(task, schedule, following, occurrence, None),))
    record, refused = _checked_and_executed(case, occurrence)
    executed = record.executed
    if refused:
        return Settled(Skip(executed.error or ""), (record, Stop(task.id, "paused", executed.error, occurrence)))
    outcome = _outcome(executed.status, executed.error, {"next_run_at": following and shown(following.occurrence)})
    return Settled(outcome, (record, _onwards(task, schedule, following, occurrence, executed)))


def _onwards(
    task: Locked, schedule: LocalSchedule, following: Placement | None, occurrence: datetime, executed: Executed | None
) -> Move | Stop:
    """To the next occurrence, or to the end."""
    if following:
        return Move(task.id, following, occurrence)
    if schedule.cron:
        return Stop(task.id, "done", NO_MORE, occurrence)
    if executed and executed.status == "failed":
        return Stop(task.id, "failed", (executed.error or "").partition("\n")[0], occurrence)
    return Stop(task.id, "done", None, occurrence)


def _checked_and_executed(case: Case, scheduled_for: datetime) -> tuple[Record, bool]:
    """How the kind ended, and whether it was not executed because the owner has no access."""
    task, run, started_at = case.task, case.run, case.now()
    trigger = TRIGGERS[run.trigger]
    refused = case.refusal(task.owner)
    if refused is not None:
        executed = Executed("skipped", error=refused)
    else:
        work = Work(
            task_id=task.id,
            kind=task.kind,
            title=task.title,
            payload=task.payload,
            organization_id=task.organization_id,
            user_id=task.user_id,
            timezone=task.timezone,
            scheduled_for=scheduled_for,
            trigger=trigger,
        )
        executed = case.execute(run, work)
    finished_at = None if executed.status == "running" else case.now()
    record = Record(task.id, scheduled_for, trigger, run.id, executed, started_at, finished_at)
    return record, refused is not None


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
