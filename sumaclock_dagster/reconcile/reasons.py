"""Why the clock did not fire what it should have, as far as that can be told now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from sumaclock_dagster.calendar import pg_cron_for
from sumaclock_dagster.clock.bulk import NamedClockJob, list_named
from sumaclock_dagster.clock.faults import Fault
from sumaclock_dagster.clock.pg_cron import PREFIX, Clock
from sumaclock_dagster.clock.slots import SLOT_PREFIX, slot_id
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.reconcile.differences import by_job, own_row
from sumaclock_dagster.reconcile.drift import read_ground
from sumaclock_dagster.reconcile.heartbeat import LateTask, MissedFiring

EXPLAINED = 100
MISSED = "The clock missed it."


def why_late(app: Connection, clock: Clock, late: Sequence[LateTask], faults: Sequence[Fault] = ()) -> dict[UUID, str]:
    """By task id: why the clock did not fire them. The first hundred. `faults`: what was wrong with the clock (see
    `clock.diagnosis`), which explains what is silent though its clock job is right."""
    some = late[:EXPLAINED]
    try:
        ground = read_ground(app, clock)
        names = {
            task.job_id: slot_id(pg_cron_for(task.scheduled_at)) if ground.has_slots else task.job_id for task in some
        }
        named = by_job(list_named(clock, set(names.values()), SLOT_PREFIX if ground.has_slots else PREFIX))
        own = {task.task_id: own_row(named.get(names[task.job_id], []), ground) for task in some}
        failures = _failures(clock, {row.jobid: task.scheduled_at for task in some if (row := own[task.task_id])})
    except SumaclockError as error:
        told = _in_words(faults) or str(error)
        return {task.task_id: told for task in some}
    known = _in_words(faults)
    started = _server_start(app) if some else None
    return {
        task.task_id: _wrong_row(own[task.task_id], task.scheduled_at)
        or known
        or _was_down(started, task.scheduled_at)
        or _failed(own[task.task_id], failures)
        or "Its clock job did not fire: see `sumaclock doctor`."
        for task in some
    }


def why_missed(app: Connection, missed: Sequence[MissedFiring], faults: Sequence[Fault] = ()) -> dict[UUID, str]:
    """By job id: why the clock did not fire them, in so far as it was no single job's fault. The first hundred."""
    known = _in_words(faults)
    started = _server_start(app) if missed else None
    return {job.job_id: known or _was_down(started, job.scheduled_at) or MISSED for job in missed[:EXPLAINED]}


def _wrong_row(own: NamedClockJob | None, at: datetime) -> str:
    if own is None:
        return "It has no clock job."
    if not own.active:
        return "Its clock job is inactive."
    if own.schedule != pg_cron_for(at):
        return f"Its clock job is at '{own.schedule}' instead of '{pg_cron_for(at)}'."
    return ""


def _in_words(faults: Collection[Fault]) -> str:
    return " ".join(f"{fault.kind.value}: {fault.problem}" for fault in faults)


def _was_down(started: datetime | None, at: datetime) -> str:
    return f"PostgreSQL was started at {started:%H:%M:%S} UTC, after that minute." if started and started > at else ""


def _failed(own: NamedClockJob | None, failures: Mapping[int, str]) -> str:
    if own is None or own.jobid not in failures:
        return ""
    said = failures[own.jobid].strip().partition("\n")[0].rstrip(".")
    return f"Its firing failed: {said or 'without a word'}."


def _server_start(app: Connection) -> datetime | None:
    row = app.execute(query("read_server_start")).fetchone()
    return row[0] if row else None


def _failures(clock: Clock, moments: Mapping[int, datetime]) -> dict[int, str]:
    """What pg_cron noted of these clock jobs' last firings (by its numbers) that failed at these moments or later."""
    values = {"jobids": list(moments), "moments": list(moments.values())}
    return clock.call(lambda conn: dict(conn.execute(query("list_failed_firings"), values).fetchall()))
