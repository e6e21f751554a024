"""`sumaclock doctor` and `sumaclock migrate`: print what the core found or did."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict

import click
import psycopg
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sumaclock_dagster import migrate as migrations
from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.doctor import CheckOutcome, CheckResult, check_environment, has_failed
from sumaclock_dagster.doctor.configuration import invalid_settings
from sumaclock_dagster.doctor.reach import OWNER_VARIABLE, open_or_refuse
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.once.runners import place_runners
from sumaclock_dagster.settings import Settings

STYLES = {
    CheckOutcome.OK: "green",
    CheckOutcome.WARNING: "yellow",
    CheckOutcome.FAILED: "bold red",
    CheckOutcome.SKIPPED: "dim",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
def doctor(as_json: bool) -> None:
    """Check settings, PostgreSQL and pg_cron; exit with 1 when a check failed."""
    results = check_environment(Settings, os.environ)
    if as_json:
        checks = [asdict(result) for result in results]
        click.echo(json.dumps({"ok": not has_failed(results), "checks": checks}, indent=2))
    else:
        print_checks(results, Console())
    if has_failed(results):
        raise SystemExit(1)


def print_checks(results: Sequence[CheckResult], console: Console) -> None:
    """A table of all checks, then two lines for each that is not well."""
    table = Table("check", "outcome", "found", box=None, pad_edge=False)
    for result in results:
        outcome = Text(result.outcome.value, style=STYLES[result.outcome])
        table.add_row(Text(result.name), outcome, Text(result.found))
    console.print(table)
    for result in results:
        if result.problem is not None:
            style = STYLES[result.outcome]
            console.print()
            # Not wrapped by us: a remedy may be a statement that somebody copies.
            console.print(Text.assemble((f"{result.name}: ", style), result.problem), soft_wrap=True)
            console.print(Text(f"  {result.remedy}"), soft_wrap=True)


@click.command()
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit with 1 when a migration is pending.")
@click.option("--json", "as_json", is_flag=True, help="Print the names as JSON.")
def migrate(only_check: bool, as_json: bool) -> None:
    """Bring the schema up to date, as the owner role."""
    try:
        names = _migrate(only_check)
    except SumaclockError as refused:
        raise click.ClickException(str(refused)) from None
    word = "pending" if only_check else "applied"
    if as_json:
        click.echo(json.dumps({word: names}))
    else:
        for name in names:
            click.echo(f"{name} {word}")
        if not names:
            click.echo("The schema is up to date.")
    if only_check and names:
        raise SystemExit(1)


def _migrate(only_check: bool) -> list[str]:
    try:
        settings = Settings()
    except ValidationError as error:
        finding = invalid_settings(error)[0]
        raise SumaclockError(f"{finding.problem} {finding.remedy}") from None
    files = migrations.load_migrations()
    with open_or_refuse(settings.owner_url, OWNER_VARIABLE) as connection:
        if only_check:
            return [migration.name for migration in migrations.pending(connection, files)]
        names = migrations.migrate(connection, files)
    _place_runners(settings)
    return names


def _place_runners(settings: Settings) -> None:
    """A schema without its app role or pg_cron is complete all the same."""
    try:
        with (
            open_or_refuse(settings.app_url, "SUMACLOCK_DATABASE_URL") as app,
            open_clock(app, settings.cron_url) as clock,
        ):
            place_runners(app, clock, settings.job_runners)
    except (SumaclockError, psycopg.Error) as error:
        click.echo(f"One-off commands have no runners yet: {error} Then `sumaclock once enable`.", err=True)
