"""`sumaclock clock`: this database's clock jobs in pg_cron, as they are there."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click
from rich.table import Table

from sumaclock_dagster.cli.output import (
    Times,
    clock_session,
    console,
    json_option,
    plain,
    print_json,
    tz_option,
)
from sumaclock_dagster.cli.records import clock_job_record, iso
from sumaclock_dagster.cli.refusals import RefusingGroup
from sumaclock_dagster.clock.bulk import clear as clear_clock
from sumaclock_dagster.clock.jobs import database_time
from sumaclock_dagster.clock.pg_cron import Clock, ClockJob
from sumaclock_dagster.clock.slots import SLOT_PREFIX, count_jobs
from sumaclock_dagster.clock.system_jobs import FoundSystemJob, clear_system, list_system, own_system
from sumaclock_dagster.db import Connection
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.once.direct import clear_direct, list_direct_jobs
from sumaclock_dagster.once.runners import list_runner_jobs, place_runners
from sumaclock_dagster.raw_schedule import next_utc


@click.group(cls=RefusingGroup)
def clock() -> None:
    """This database's clock jobs in pg_cron."""


@clock.command("list")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True)
@json_option
@tz_option
def list_(limit: int, as_json: bool, tz: Any) -> None:
    """List the clock jobs of this database and role, the next to fire first, those of slots with their number of jobs.
    After them come the system clock jobs, which run in pg_cron's own database."""
    with clock_session() as (app, opened):
        now = database_time(app)
        listed, jobs = _listed(opened), count_jobs(app)
        slots = {job.jobid: jobs.get(job.job_id, 0) for job in opened.listed(SLOT_PREFIX)}
    found = sorted(
        ((next_minute(job, now), job) for job in listed),
        key=lambda pair: (isinstance(pair[1], FoundSystemJob), pair[0] is None, pair[0] or now),
    )
    if as_json:
        records = [
            {**_names(job, slots), **clock_job_record(job), "next_firing_at": iso(at)} for at, job in found[:limit]
        ]
        print_json(records)
    else:
        table = Table("fires next", "schedule", "job", "pg_cron", box=None, pad_edge=False)
        for at, job in found[:limit]:
            when = Times(tz).minutes(at) if at else "never" if job.active else "inactive"
            table.add_row(plain(when), plain(job.schedule), plain(_name(job, slots)), plain(job.jobid))
        console().print(table)
        click.echo(f"{len(listed)} clock job{'' if len(listed) == 1 else 's'}.")
    if len(found) > limit:
        click.echo(f"Only the first {limit} of {len(found)}; --limit shows more.", err=True)


@clock.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def clear(yes: bool, as_json: bool) -> None:
    """Take all clock jobs of this database away, before it is dropped: nothing of it fires any more."""
    with clock_session() as (app, opened):
        number = len(_listed(opened)) + len(list_runner_jobs(opened)) + len(list_direct_jobs(opened))
        if number and not yes:
            click.echo(
                f"All {number} clock jobs of database '{opened.database_name}' go: nothing of it fires any more, until "
                "the hourly repair or `sumaclock drift --fix` places them again, and `sumaclock once enable` runners.",
                err=True,
            )
            click.confirm(f"Remove the {number} clock jobs of '{opened.database_name}'?", abort=True, err=True)
        removed = _clear(app, opened) if number else 0
    if as_json:
        print_json({"database": opened.database_name, "removed": removed})
    else:
        click.echo(f"{removed} clock jobs of database '{opened.database_name}' are removed.")


def _clear(app: Connection, opened: Clock) -> int:
    runners = len(place_runners(app, opened, 0).removed) if list_runner_jobs(opened) else 0
    return clear_clock(opened) + clear_system(opened) + runners + clear_direct(opened)


def _listed(opened: Clock) -> list[ClockJob | FoundSystemJob]:
    return [*opened.listed(), *opened.listed(SLOT_PREFIX), *own_system(opened, list_system(opened))]


def _name(job: ClockJob | FoundSystemJob, slots: Mapping[int, int]) -> str:
    if isinstance(job, FoundSystemJob):
        return f"system {job.what}"
    jobs = slots.get(job.jobid)
    return str(job.job_id) if jobs is None else f"slot of {jobs} job{'' if jobs == 1 else 's'}"


def _names(job: ClockJob | FoundSystemJob, slots: Mapping[int, int]) -> dict[str, Any]:
    if isinstance(job, FoundSystemJob):
        return {"job_id": None, "system_clock_job": job.what, "slot": None, "jobs": None}
    jobs = slots.get(job.jobid)
    ids = {"job_id": str(job.job_id), "slot": None} if jobs is None else {"job_id": None, "slot": str(job.job_id)}
    return {**ids, "system_clock_job": None, "jobs": 1 if jobs is None else jobs}


def next_minute(job: ClockJob | FoundSystemJob, now: datetime) -> datetime | None:
    """When it fires next (UTC); None for an inactive one, and for a schedule that no grammar of ours knows."""
    if not job.active:
        return None
    try:
        return next_utc(job.schedule, now)
    except SumaclockError:
        return None
