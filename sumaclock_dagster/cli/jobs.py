"""`sumaclock jobs`: create, look at and change jobs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click

from sumaclock_dagster.cli.job_options import catch_up_option, overlap_option
from sumaclock_dagster.cli.output import (
    Times,
    app_session,
    clock_session,
    find_firing,
    json_option,
    print_json,
    read_payload,
    tell_limit,
    tz_option,
)
from sumaclock_dagster.cli.records import clock_job_record, job_record, next_firing, run_record
from sumaclock_dagster.cli.refusals import RefusingGroup
from sumaclock_dagster.cli.views import clock_words, print_job, print_jobs, print_runs
from sumaclock_dagster.clock.jobs import (
    change_job,
    count_runs,
    create_job,
    database_time,
    delete_job,
    get_job,
    list_jobs,
    pause_job,
    resume_job,
)
from sumaclock_dagster.db import Connection
from sumaclock_dagster.model import Job, RunStatus
from sumaclock_dagster.queue.runs import fire, get_run, list_runs

LAST_RUNS = 5


@click.group(cls=RefusingGroup)
def jobs() -> None:
    """Jobs: what is to run, and when (UTC)."""


@jobs.command()
@click.option("--kind", required=True, help="Which handler executes it, for example 'demo'.")
@click.option("--org", "organization_id", required=True, help="Organization id of the owner.")
@click.option("--user", "user_id", required=True, help="User id of the owner.")
@click.option("--schedule", required=True, help="Five cron fields in UTC, or '30 seconds'.")
@click.option("--payload", default="{}", show_default=True, help="JSON for the handler; @FILE or - (stdin) reads it.")
@click.option("--id", "job_id", type=click.UUID, help="An id of your own instead of a new one.")
@click.option("--paused", is_flag=True, help="Create it without letting it fire yet.")
@catch_up_option(default="one")
@overlap_option(default="auto")
@json_option
@tz_option
def add(
    kind: str,
    organization_id: str,
    user_id: str,
    schedule: str,
    payload: str,
    job_id: UUID | None,
    paused: bool,
    catch_up: str,
    overlap: str,
    as_json: bool,
    tz: Any,
) -> None:
    """Create a job."""
    parsed = read_payload(payload)
    with clock_session() as (app, clock):
        job = create_job(
            app,
            clock,
            kind=kind,
            organization_id=organization_id,
            user_id=user_id,
            payload=parsed,
            schedule=schedule,
            enabled=not paused,
            catch_up=catch_up,
            overlap=overlap,
            job_id=job_id,
        )
        _tell(app, job, "created", as_json, tz)


@jobs.command("list")
@click.option("--org", "organization_id", help="Only of this organization.")
@click.option("--kind", help="Only of this kind.")
@click.option("--enabled/--paused", "enabled", default=None, help="Only those that fire, or only those that do not.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@json_option
@tz_option
def list_(
    organization_id: str | None, kind: str | None, enabled: bool | None, limit: int, as_json: bool, tz: Any
) -> None:
    """List jobs, newest first."""
    with app_session() as app:
        found = list_jobs(app, organization_id=organization_id, kind=kind, enabled=enabled, limit=limit)
        now = database_time(app)
    if as_json:
        print_json([job_record(job, now) for job in found])
    else:
        print_jobs(found, now, Times(tz))
    tell_limit(found, limit)


@jobs.command()
@click.argument("job_id", type=click.UUID)
@json_option
@tz_option
def show(job_id: UUID, as_json: bool, tz: Any) -> None:
    """Show a job, its clock job and its last runs."""
    with clock_session() as (app, clock):
        job = get_job(app, job_id)
        now = database_time(app)
        firing = find_firing(app, clock, job)
        runs = list_runs(app, job_id=job_id, limit=LAST_RUNS)
    if as_json:
        record = {
            "clock_job": clock_job_record(firing.clock_job) if firing.clock_job else None,
            "clock_error": firing.fault,
            "last_runs": [run_record(run) for run in runs],
        }
        print_json(job_record(job, now) | record)
    else:
        print_job(job, now, clock_words(job, firing), Times(tz))
        print_runs(runs, Times(tz))


@jobs.command()
@click.argument("job_id", type=click.UUID)
@click.option("--schedule", help="Five cron fields in UTC, or '30 seconds'.")
@click.option("--payload", help="JSON for the handler; @FILE or - (stdin) reads it.")
@click.option("--kind", help="Which handler executes it.")
@catch_up_option(default=None)
@overlap_option(default=None)
@json_option
@tz_option
def edit(
    job_id: UUID,
    schedule: str | None,
    payload: str | None,
    kind: str | None,
    catch_up: str | None,
    overlap: str | None,
    as_json: bool,
    tz: Any,
) -> None:
    """Change what is given and leave the rest."""
    given: dict[str, Any] = {"schedule": schedule, "kind": kind, "catch_up": catch_up, "overlap": overlap}
    if payload is None and all(value is None for value in given.values()):
        raise click.UsageError("Nothing to change: give --schedule, --payload, --kind, --catch-up or --overlap.")
    parsed = ... if payload is None else read_payload(payload)
    with clock_session() as (app, clock):
        job = change_job(app, clock, job_id, payload=parsed, **given)
        _tell(app, job, "changed", as_json, tz)


@jobs.command()
@click.argument("job_id", type=click.UUID)
@json_option
@tz_option
def pause(job_id: UUID, as_json: bool, tz: Any) -> None:
    """Stop a job's firings until it is resumed."""
    with clock_session() as (app, clock):
        _tell(app, pause_job(app, clock, job_id), "paused", as_json, tz)


@jobs.command()
@click.argument("job_id", type=click.UUID)
@json_option
@tz_option
def resume(job_id: UUID, as_json: bool, tz: Any) -> None:
    """Let a paused job fire again."""
    with clock_session() as (app, clock):
        _tell(app, resume_job(app, clock, job_id), "resumed", as_json, tz)


@jobs.command()
@click.argument("job_id", type=click.UUID)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(job_id: UUID, yes: bool, as_json: bool) -> None:
    """Delete a job with all its runs."""
    with clock_session() as (app, clock):
        if not yes:
            _confirm(app, job_id)
        gone = delete_job(app, clock, job_id)
    if as_json:
        runs = {status.value: gone.runs.get(status, 0) for status in RunStatus}
        print_json({"id": str(job_id), "deleted": True, "runs": runs})
    else:
        click.echo(f"Job {job_id} is deleted, and {_counted(gone.runs)} with it.")


@jobs.command("fire")
@click.argument("job_id", type=click.UUID)
@json_option
def fire_(job_id: UUID, as_json: bool) -> None:
    """Write a run now, whatever the schedule says."""
    with app_session() as app:
        run = get_run(app, fire(app, job_id))
    if as_json:
        print_json(run_record(run))
    else:
        click.echo(f"Run {run.id} is {run.status.value}. `sumaclock runs show {run.id}` tells what became of it.")


def _tell(app: Connection, job: Job, done: str, as_json: bool, tz: Any) -> None:
    now = database_time(app)
    if as_json:
        print_json(job_record(job, now))
        return
    fires = next_firing(job, now)
    when = f"fires next at {Times(tz).both(fires)}" if fires else "does not fire"
    click.echo(f"Job {job.id} is {done}; it {when}.")


def _confirm(app: Connection, job_id: UUID) -> None:
    job = get_job(app, job_id)
    click.echo(
        f"Job {job.id} of kind {job.kind!r}, owner {job.organization_id!r} / {job.user_id!r}, schedule "
        f"'{job.schedule}', goes for ever, and {_counted(count_runs(app, job.id))} with it.",
        err=True,
    )
    click.confirm("Delete it?", abort=True, err=True)


def _counted(runs: dict[RunStatus, int]) -> str:
    total = sum(runs.values())
    parts = ", ".join(f"{runs[status]} {status.value}" for status in RunStatus if status in runs)
    return f"{total} run{'' if total == 1 else 's'} ({parts})" if total else "no runs"
