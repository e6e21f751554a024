"""`sumaclock runs`: look at runs, try them again, follow them as they end."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

import click

from sumaclock_dagster.cli.output import (
    Times,
    app_session,
    json_option,
    print_json,
    tell_limit,
    tz_option,
)
from sumaclock_dagster.cli.records import run_record
from sumaclock_dagster.cli.refusals import RefusingGroup
from sumaclock_dagster.cli.views import print_end, print_run, print_runs
from sumaclock_dagster.model import Run, RunStatus
from sumaclock_dagster.queue.ends import Ends
from sumaclock_dagster.queue.runs import get_run, list_runs, retry_run

LOOK_SECONDS = 0.5
RUN_ID = click.IntRange(1, 2**63 - 1)


@click.group(cls=RefusingGroup)
def runs() -> None:
    """Runs: the work orders that firings wrote."""


@runs.command("list")
@click.option("--status", type=click.Choice([status.value for status in RunStatus]), help="Only with this status.")
@click.option("--job", "job_id", type=click.UUID, help="Only of this job.")
@click.option("--kind", help="Only of this kind.")
@click.option("--org", "organization_id", help="Only of this organization.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@json_option
@tz_option
def list_(
    status: str | None,
    job_id: UUID | None,
    kind: str | None,
    organization_id: str | None,
    limit: int,
    as_json: bool,
    tz: Any,
) -> None:
    """List runs, newest first."""
    wanted = RunStatus(status) if status else None
    with app_session() as app:
        found = list_runs(app, status=wanted, job_id=job_id, kind=kind, organization_id=organization_id, limit=limit)
    if as_json:
        print_json([run_record(run) for run in found])
    else:
        print_runs(found, Times(tz))
    tell_limit(found, limit)


@runs.command()
@click.argument("run_id", type=RUN_ID)
@json_option
@tz_option
def show(run_id: int, as_json: bool, tz: Any) -> None:
    """Show a run with its result or error."""
    with app_session() as app:
        run = get_run(app, run_id)
    if as_json:
        print_json(run_record(run))
    else:
        print_run(run, Times(tz))


@runs.command()
@click.argument("run_id", type=RUN_ID)
@json_option
def retry(run_id: int, as_json: bool) -> None:
    """Put a failed or skipped run back to pending."""
    with app_session() as app:
        run = retry_run(app, run_id)
    if as_json:
        print_json(run_record(run))
    else:
        click.echo(f"Run {run.id} is {run.status.value} again, under the same idempotency key.")


@runs.command()
@click.option("--job", "job_id", type=click.UUID, help="Only of this job.")
@click.option("--kind", help="Only of this kind.")
@click.option("--org", "organization_id", help="Only of this organization.")
@json_option
@tz_option
def tail(job_id: UUID | None, kind: str | None, organization_id: str | None, as_json: bool, tz: Any) -> None:
    """Follow runs as they end, until Ctrl-C. --json prints one object a line."""

    def wanted(run: Run) -> bool:
        return (
            job_id in (None, run.job_id) and kind in (None, run.kind) and organization_id in (None, run.organization_id)
        )

    try:
        with app_session() as app:
            ends = Ends(app)
            click.echo("Following runs as they end. Ctrl-C stops.", err=True)
            while True:
                for run in filter(wanted, ends.look()):
                    print_json(run_record(run), one_line=True) if as_json else print_end(run, Times(tz))
                threading.Event().wait(LOOK_SECONDS)
    except KeyboardInterrupt:
        click.echo("", err=True)
