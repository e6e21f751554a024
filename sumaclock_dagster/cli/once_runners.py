"""`sumaclock once enable` and `disable`: the runners of a role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from sumaclock_dagster.cli.output import clock_session, json_option, print_json
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.clock.reach import connect_or_refuse
from sumaclock_dagster.db import Connection, database_name, with_database
from sumaclock_dagster.embedded.configuration import read_cluster_file
from sumaclock_dagster.embedded.ground import private_cluster
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.once.runners import Runners, place_runners
from sumaclock_dagster.settings import Settings

ROLE = click.option("--role", help="Another role's; takes a superuser.  [default: the app role]")
SUPERUSER = click.option(
    "--superuser-url",
    envvar="SUMACLOCK_SUPERUSER_URL",
    show_envvar=True,
    help="With --role: a superuser's URL of this server.  [default: the private cluster's]",
)


@click.command()
@ROLE
@click.option("--runners", type=click.IntRange(1, 32), help="How many at once.  [default: SUMACLOCK_JOB_RUNNERS]")
@SUPERUSER
@json_option
def enable(role: str | None, runners: int | None, superuser_url: str | None, as_json: bool) -> None:
    """Let pg_cron run a role's commands: make its runners, or make them anew."""
    with _runner_sessions(role, superuser_url) as (app, clock):
        done = place_runners(app, clock, runners or Settings().job_runners or 4, role)
    _tell(done, as_json)


@click.command()
@ROLE
@SUPERUSER
@json_option
def disable(role: str | None, superuser_url: str | None, as_json: bool) -> None:
    """Remove a role's runners. Do so before you drop the role: a clock job of a dropped role stops all of pg_cron."""
    with _runner_sessions(role, superuser_url) as (app, clock):
        done = place_runners(app, clock, 0, role)
    _tell(done, as_json)


@contextmanager
def _runner_sessions(role: str | None, superuser_url: str | None) -> Iterator[tuple[Connection, Clock]]:
    """The app database and the clock: as the app role, or for another role as a superuser."""
    if role is None:
        with clock_session() as both:
            yield both
        return
    settings = Settings()
    cluster = private_cluster(settings, lambda _: None)
    if superuser_url is None and cluster is not None:
        file = read_cluster_file(settings.home)
        superuser_url = file.superuser_url if file else None
    if superuser_url is None:
        raise SumaclockError(
            f"Runners for role '{role}' are made by a superuser: set SUMACLOCK_SUPERUSER_URL to "
            "postgresql://postgres:password@host/postgres."
        )
    target = with_database(superuser_url, database_name(settings.app_url))
    with (
        connect_or_refuse(target, "sumaclock cli", "SUMACLOCK_SUPERUSER_URL") as app,
        open_clock(app, with_database(superuser_url, database_name(settings.cron_url))) as clock,
    ):
        if cluster is not None:
            cluster.admit_roles(app)
        yield app, clock


def _tell(done: Runners, as_json: bool) -> None:
    if as_json:
        seconds = done.start_delay.total_seconds()
        print_json({**_names(done), "start_within_seconds": seconds if done.runners else None})
        return
    for warning in done.warnings:
        click.echo(f"Warning: {warning}", err=True)
    whose = f"Role {done.role}" if done.role else "The app role"
    if not done.runners:
        click.echo(f"{whose} has no runners any more; what it queued waits.")
        return
    changed = f"{len(done.placed)} made or changed" if done.placed else "all were there"
    click.echo(f"{whose} has {done.runners} runners and a watcher ({changed}). Due commands start within about")
    click.echo(f"{done.start_delay.total_seconds():.0f} seconds.")


def _names(done: Runners) -> dict[str, object]:
    return {
        "role": done.role,
        "runners": done.runners,
        "placed": done.placed,
        "removed": done.removed,
        "warnings": done.warnings,
    }
