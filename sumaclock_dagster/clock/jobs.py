"""Create, change, pause, resume and delete jobs: the row and its clock job together.

The two live in different databases and share no transaction. So each change is ordered such that a crash in between
leaves a clock job whose firing does nothing, or a difference that reconciliation can see, and never an enabled row that
silently does not fire. A lock on the job's id, held until the commit, lets one session at a time change a job.

All functions join a transaction that the caller has open on `app`. The row is then the caller's to commit; creating,
changing and resuming still place the clock job at once (should the caller roll back, it fires for nothing or at the
new times until the job is changed, resumed or deleted). `pause_job` and `delete_job` leave the clock job alone, since
they must not remove it before the commit: call `clock.unschedule(job_id)` after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import EllipsisType
from typing import Any
from uuid import UUID

from psycopg.pq import TransactionStatus
from psycopg.rows import class_row

from sumaclock_dagster.clock.command import is_careful
from sumaclock_dagster.clock.payload import check_text, payload_json
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.clock.placing import Standing, place_job, read_standing
from sumaclock_dagster.clock.refusals import job_refusals
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import Job, RunStatus, SumaclockError
from sumaclock_dagster.raw_schedule import check


@dataclass(frozen=True, slots=True)
class DeletedJob:
    """A job that is gone, and how many runs of each status went with it (statuses without runs are left out)."""

    job: Job
    runs: dict[RunStatus, int]


def create_job(
    app: Connection,
    clock: Clock,
    *,
    kind: str,
    organization_id: str,
    user_id: str,
    payload: Any,
    schedule: str,
    enabled: bool = True,
    catch_up: str = "one",
    overlap: str = "auto",
    job_id: UUID | None = None,
) -> Job:
    """Create a job and, where it is enabled, its clock job; it first fires in a minute that begins after the commit.

    schedule: raw, in UTC. payload: anything JSON-able up to 1 MB. catch_up: after missed firings "one"
    run for the last of them, or "none". overlap: while one of its last ten runs is pending or running, a firing writes
    none ("skip") or one all the same ("allow"); "auto" skips for seconds and allows otherwise. Raises SumaclockError
    for what the rules refuse.
    """
    for name, text in (
        ("kind", kind),
        ("organization id", organization_id),
        ("user id", user_id),
        ("catch_up", catch_up),
        ("overlap", overlap),
    ):
        check_text(name, text)
    values = {"kind": kind, "organization_id": organization_id, "user_id": user_id, "enabled": enabled}
    values |= {"payload": payload_json(payload), "schedule": _checked(clock, schedule), "job_id": job_id}
    values |= {"catch_up": catch_up, "overlap": overlap}
    with _change(app, job_id):
        job = _one(app, "insert_job", values)
        assert job is not None  # noqa: S101  (an insert returns its row or raises)
        if enabled:
            _place(app, clock, job, None, new=job_id is None)
    return job


def change_job(
    app: Connection,
    clock: Clock,
    job_id: UUID,
    *,
    schedule: str | None = None,
    payload: Any | EllipsisType = ...,
    kind: str | None = None,
    catch_up: str | None = None,
    overlap: str | None = None,
) -> Job:
    """Change what is given and leave the rest (payload `...` means unchanged, None is JSON null).

    Raises SumaclockError for an unknown job and for what the rules refuse.
    """
    for name, text in (("kind", kind), ("catch_up", catch_up), ("overlap", overlap)):
        check_text(name, text or "")
    values = {
        "kind": kind,
        "catch_up": catch_up,
        "overlap": overlap,
        "payload": None if payload is ... else payload_json(payload),
        "schedule": None if schedule is None else _checked(clock, schedule),
    }
    with _change(app, job_id):
        before = read_standing(app, job_id)
        job = _updated(app, job_id, **values)
        if job.enabled and (schedule is not None or overlap is not None):
            _place(app, clock, job, before)
    return job


def pause_job(app: Connection, clock: Clock, job_id: UUID) -> Job:
    """Stop the job's firings; a run that a last firing wrote in between is skipped by the worker.

    Pausing a paused job removes a clock job that was left over. Raises SumaclockError for an unknown job.
    """
    joined = _in_transaction(app)
    with _change(app, job_id):
        job = _updated(app, job_id, enabled=False)
    if not joined:
        _remove_clock_job(app, clock, job_id, "paused")
    return job


def resume_job(app: Connection, clock: Clock, job_id: UUID) -> Job:
    """Let the job fire again. Resuming an enabled job places a clock job that was missing.

    Raises SumaclockError for an unknown job, and for a schedule that this pg_cron does not know.
    """
    with _change(app, job_id):
        before = read_standing(app, job_id)
        job = _updated(app, job_id, enabled=True)
        _checked(clock, job.schedule)
        _place(app, clock, job, before)
    return job


def delete_job(app: Connection, clock: Clock, job_id: UUID) -> DeletedJob:
    """Delete the job, its runs and its clock job. Runs that a worker holds end as claims that were lost.

    Raises SumaclockError for an unknown job, after removing a clock job that was left over.
    """
    joined = _in_transaction(app)
    with _change(app, job_id):
        app.execute(query("hold_job"), {"job_id": job_id})
        runs = count_runs(app, job_id)
        job = _one(app, "delete_job", {"job_id": job_id})
    if not joined:
        _remove_clock_job(app, clock, job_id, "deleted")
    if job is None:
        raise _unknown(job_id)
    return DeletedJob(job, runs)


def get_job(app: Connection, job_id: UUID) -> Job:
    """The job. Raises SumaclockError when there is none."""
    job = _one(app, "get_job", {"job_id": job_id})
    if job is None:
        raise _unknown(job_id)
    return job


def list_jobs(
    app: Connection,
    *,
    organization_id: str | None = None,
    kind: str | None = None,
    enabled: bool | None = None,
    limit: int = 100,
) -> list[Job]:
    """Jobs that match all given filters, newest first."""
    for name, text in (("organization id", organization_id), ("kind", kind)):
        check_text(name, text or "")
    values = {"organization_id": organization_id, "kind": kind, "enabled": enabled, "limit": limit}
    with job_refusals():
        return app.cursor(row_factory=class_row(Job)).execute(query("list_jobs"), values).fetchall()


def count_runs(app: Connection, job_id: UUID) -> dict[RunStatus, int]:
    """How many runs the job has, by status; statuses without runs are left out."""
    rows = app.execute(query("count_runs_of_job"), {"job_id": job_id}).fetchall()
    return {RunStatus(status): count for status, count in rows}


def database_time(app: Connection) -> datetime:
    """PostgreSQL's now(), aware."""
    row = app.execute(query("read_time")).fetchone()
    assert row is not None  # noqa: S101  (a select without from has one row)
    return row[0]  # type: ignore[no-any-return]


@contextmanager
def _change(app: Connection, job_id: UUID | None) -> Iterator[None]:
    with job_refusals(), app.transaction():
        if job_id is not None:
            app.execute(query("lock_job"), {"job_id": job_id})
        yield


def _remove_clock_job(app: Connection, clock: Clock, job_id: UUID, done: str) -> None:
    """After the commit, and under the lock again: somebody may have resumed or created the job anew meanwhile."""
    try:
        with _change(app, job_id):
            job = _one(app, "get_job", {"job_id": job_id})
            if job is None or not job.enabled:
                clock.unschedule(job_id)
    except SumaclockError as error:
        raise SumaclockError(
            f"Job {job_id} is {done}, but its clock job is still there and fires for nothing. {error} "
            "Repeat the command to remove it."
        ) from None


def _checked(clock: Clock, schedule: str) -> str:
    check_text("schedule", schedule)
    check(schedule, clock.features())
    return schedule


def _place(app: Connection, clock: Clock, job: Job, before: Standing | None, *, new: bool = False) -> None:
    careful = is_careful(job.schedule, job.overlap)
    place_job(app, clock, job.id, job.schedule, careful=careful, before=before, new=new)


def _updated(app: Connection, job_id: UUID, **values: Any) -> Job:
    unchanged = dict.fromkeys(("kind", "payload", "schedule", "enabled", "catch_up", "overlap"))
    job = _one(app, "update_job", {**unchanged, **values, "job_id": job_id})
    if job is None:
        raise _unknown(job_id)
    return job


def _one(app: Connection, name: str, values: dict[str, Any]) -> Job | None:
    with job_refusals():
        return app.cursor(row_factory=class_row(Job)).execute(query(name), values).fetchone()


def _in_transaction(app: Connection) -> bool:
    return app.info.transaction_status != TransactionStatus.IDLE


def _unknown(job_id: UUID) -> SumaclockError:
    return SumaclockError(f"There is no job {job_id}; `sumaclock jobs list` shows those that exist.")
