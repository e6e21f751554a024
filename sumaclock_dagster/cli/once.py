"""`sumaclock once`: commands that run once in the background, inside PostgreSQL."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from sumaclock_dagster.cli.once_runners import disable, enable
from sumaclock_dagster.cli.once_views import (
    direct_record,
    failed_record,
    print_direct,
    print_failed,
    print_queue,
    queued_record,
)
from sumaclock_dagster.cli.output import (
    Times,
    app_session,
    clock_session,
    json_option,
    print_json,
    tell_limit,
    tz_option,
)
from sumaclock_dagster.cli.records import iso
from sumaclock_dagster.cli.refusals import RefusingGroup
from sumaclock_dagster.once import queue
from sumaclock_dagster.once.direct import list_direct, place_direct

JOBID = click.IntRange(1, 2**63 - 1)
LIMIT = click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)


@click.group(cls=RefusingGroup)
def once() -> None:
    """Commands that run once in the background, inside PostgreSQL, as the role that queued them."""


@once.command()
@click.argument("command")
@click.option("--max-attempts", type=click.IntRange(1, 1000), default=5, show_default=True)
@click.option("--run-after", type=click.DateTime(["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S"]), help="UTC by default.")
@click.option("--priority", type=click.IntRange(-(2**31), 2**31 - 1), default=0, help="Higher ones first.")
@click.option("--timeout", "timeout_seconds", type=click.IntRange(1, 2_592_000), help="Seconds; then it is cancelled.")
@click.option("--dedup-key", help="Queue nothing while a command with this key waits or runs.")
@click.option("--note", help="Yours, to find it again.")
@click.option(
    "--direct", is_flag=True, help="For VACUUM and the like: a clock job of its own, one attempt, no options."
)
@json_option
def add(
    command: str,
    max_attempts: int,
    run_after: datetime | None,
    priority: int,
    timeout_seconds: int | None,
    dedup_key: str | None,
    note: str | None,
    direct: bool,
    as_json: bool,
) -> None:
    """Queue COMMAND (SQL; @FILE or - reads it)."""
    text = _read(command)
    if direct:
        if max_attempts != 5 or run_after or priority or timeout_seconds or dedup_key or note:
            raise click.UsageError("--direct takes no other options: pg_cron runs it once, in the next minute.")
        _add_direct(text, as_json)
        return
    when = run_after.replace(tzinfo=run_after.tzinfo or UTC) if run_after else None
    timeout = timedelta(seconds=timeout_seconds) if timeout_seconds else None
    with app_session() as app:
        jobid, warnings = queue.schedule_once(
            app,
            text,
            max_attempts=max_attempts,
            run_after=when,
            priority=priority,
            timeout=timeout,
            dedup_key=dedup_key,
            note=note,
        )
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)
    if as_json:
        print_json({"jobid": jobid, "warnings": warnings})
    else:
        click.echo(f"Command {jobid} is queued. `sumaclock once list` and `errors` tell what became of it.")


@once.command("list")
@LIMIT
@click.option("--direct", is_flag=True, help="Direct commands instead: those that wait, and pg_cron's log of the rest.")
@json_option
@tz_option
def list_(limit: int, direct: bool, as_json: bool, tz: object) -> None:
    """List the commands that run and wait. Those that succeeded are gone."""
    times = Times(tz)  # type: ignore[arg-type]  # click knows no type of it
    if direct:
        with clock_session() as (_, clock):
            ran = list_direct(clock, limit)
        print_json([direct_record(entry) for entry in ran]) if as_json else print_direct(ran, times)
        tell_limit(ran, limit)
        return
    with app_session() as app:
        found = queue.list_queued(app, limit)
    print_json([queued_record(entry) for entry in found]) if as_json else print_queue(found, times)
    tell_limit(found, limit)


@once.command()
@LIMIT
@json_option
@tz_option
def errors(limit: int, as_json: bool, tz: object) -> None:
    """List the commands that failed for good, newest first."""
    with app_session() as app:
        found = queue.list_failed(app, limit)
    if as_json:
        print_json([failed_record(entry) for entry in found])
    else:
        print_failed(found, Times(tz))  # type: ignore[arg-type]  # as above
    tell_limit(found, limit)


@once.command()
@click.argument("jobid", type=JOBID)
@json_option
def cancel(jobid: int, as_json: bool) -> None:
    """Take a command out of the queue; one that runs is cancelled within about 5 seconds."""
    with app_session() as app:
        became = queue.cancel(app, jobid)
    if as_json:
        print_json({"jobid": jobid, "became": became})
    elif became == "removed":
        click.echo(f"Command {jobid} is removed.")
    else:
        click.echo(f"Command {jobid} runs and is being cancelled; `sumaclock once errors` has it then.")


@once.command()
@click.argument("jobid", type=JOBID)
@json_option
def retry(jobid: int, as_json: bool) -> None:
    """Queue a command that failed for good again, with all its attempts."""
    with app_session() as app:
        new = queue.retry(app, jobid)
    if as_json:
        print_json({"jobid": new, "was": jobid})
    else:
        click.echo(f"Command {jobid} is queued again, as command {new}.")


def _add_direct(command: str, as_json: bool) -> None:
    with clock_session() as (_, clock):
        name, fires_at = place_direct(clock, command)
    if as_json:
        print_json({"clock_job": name, "fires_at": iso(fires_at)})
    else:
        click.echo(
            f"Clock job {name} fires once at {fires_at:%H:%M} UTC. `sumaclock once list --direct` tells the end."
        )


def _read(command: str) -> str:
    try:
        if command == "-":
            return sys.stdin.read()
        return Path(command[1:]).read_text(encoding="utf-8") if command.startswith("@") else command
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"cannot be read: {error}", param_hint="COMMAND") from None


once.add_command(enable)
once.add_command(disable)
