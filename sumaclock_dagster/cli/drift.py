"""`sumaclock drift`: where pg_cron and the jobs disagree, and mending it."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from sumaclock_dagster.cli.output import clock_session, console, json_option, plain, print_json
from sumaclock_dagster.reconcile.drift import Drift, count_by_kind, find_drift
from sumaclock_dagster.reconcile.sync import SyncReport, sync

SHOWN = 50


@click.command()
@click.option("--fix", is_flag=True, help="Mend it. Clock jobs of other databases are never touched.")
@json_option
def drift(fix: bool, as_json: bool) -> None:
    """Show every difference between the jobs and pg_cron; exit with 1 when one remains."""
    with clock_session() as (app, clock):
        report = sync(app, clock, say=_say) if fix else _found(find_drift(app, clock))
    if as_json:
        print_json(drift_record(report, fix))
    else:
        _print(report, fix)
    if report.left:
        raise SystemExit(1)


def drift_record(report: SyncReport, fixed: bool) -> dict[str, Any]:
    """For --json. `mended` is empty without --fix."""
    mended = report.mended if fixed else []
    return {
        "found": report.counts,
        "mended": count_by_kind(mended),
        "left": [_record(found) for found in report.left],
        "clock_jobs_placed": report.placed,
        "clock_jobs_removed": report.removed,
        "rows_mended": report.rows,
    }


def _found(found: list[Drift]) -> SyncReport:
    return SyncReport(dry_run=True, found=found, left=found)


def _record(found: Drift) -> dict[str, Any]:
    return {
        "job_id": None if found.job_id is None else str(found.job_id),
        "system_clock_job": found.system or None,
        "slot": None if found.slot is None else str(found.slot),
        "drift": found.kind.value,
        "jobid": found.jobid,
        "wanted": found.wanted,
        "found": found.found,
        "why_left": found.left or None,
    }


def _print(report: SyncReport, fixed: bool) -> None:
    if fixed and report.mended:
        click.echo(f"Mended: {_words(report.mended)}.")
    if not report.left:
        click.echo("No drift: pg_cron says what the jobs say.")
        return
    click.echo(f"{'Left' if fixed else 'Drift'}: {_words(report.left)}.")
    table = Table("drift", "wanted", "found", "job", box=None, pad_edge=False)
    for found in report.left[:SHOWN]:
        table.add_row(plain(found.kind.value), plain(found.wanted), plain(found.found), plain(found.subject))
    console().print(table)
    if len(report.left) > SHOWN:
        click.echo(f"Only the first {SHOWN} of {len(report.left)}; --json has all.")
    for reason in sorted({found.left for found in report.left if found.left})[:SHOWN]:
        click.echo(plain(reason).plain)
    if not fixed and any(not found.left for found in report.left):
        click.echo("`sumaclock drift --fix` mends it.")


def _words(found: list[Drift]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in count_by_kind(found).items())


def _say(text: str) -> None:
    click.echo(text, err=True)
