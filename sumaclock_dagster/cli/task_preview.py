"""`sumaclock tasks preview`: when a task fires next, or a schedule that is no task yet."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import click

from sumaclock_dagster.calendar import DEFAULT_TIMEZONE, LocalSchedule, parse_schedule
from sumaclock_dagster.calendar import preview as upcoming_of
from sumaclock_dagster.cli.output import app_session, console, json_option, plain, print_json
from sumaclock_dagster.cli.records import iso
from sumaclock_dagster.cli.task_options import Moment, language_option, moment_in, schedule_options
from sumaclock_dagster.cli.task_records import occurrence_record, upcoming, words
from sumaclock_dagster.cli.task_views import next_sentence, print_occurrences
from sumaclock_dagster.clock.jobs import database_time
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import Task, Upcoming

KEPT = 10


@click.command()
@click.argument("task_id", type=click.UUID, required=False)
@schedule_options
@click.option("--after", type=Moment(), help="Begin after this moment instead of now. Needs --cron or --at.")
@click.option("--count", type=click.IntRange(1, 1000), default=KEPT, show_default=True)
@language_option
@json_option
def preview(
    task_id: UUID | None,
    cron: str | None,
    at: datetime | None,
    timezone: str | None,
    after: datetime | None,
    count: int,
    language: str,
    as_json: bool,
) -> None:
    """Show when a task or a schedule fires next.

    A schedule, by --cron or --at, need be no task yet. Marked are occurrences that a clock change moves, repeats or
    puts on another offset.
    """
    if task_id is not None:
        if (cron, at, timezone, after) != (None,) * 4:
            raise click.UsageError("Give either a task, or --cron or --at with --timezone and --after.")
        if count > KEPT:
            raise click.UsageError(f"A task keeps its next {KEPT} occurrences. Preview its --cron to see more.")
        _preview_task(task_id, count, language, as_json)
        return
    if (cron is None) == (at is None):
        raise click.UsageError("Give a task, or --cron '0 9 * * MON', or --at '2026-12-01 09:00'.")
    zone = timezone or DEFAULT_TIMEZONE
    schedule = parse_schedule(cron, moment_in(at, zone), zone)
    _print(schedule, upcoming(upcoming_of(schedule, moment_in(after, zone) or _now(), count)), language, as_json)


def _preview_task(task_id: UUID, count: int, language: str, as_json: bool) -> None:
    with app_session() as app:
        lines = api.preview(app, task_id, count)
        task = api.get(app, task_id)
    _print(task, lines, language, as_json)


def _print(of: Task | LocalSchedule, lines: list[Upcoming], language: str, as_json: bool) -> None:
    said = words(of, language)
    task = of if isinstance(of, Task) else None
    if as_json:
        record: dict[str, Any] = {
            "task_id": str(task.id) if task else None,
            "cron": of.cron,
            "instant": iso(of.instant),
        }
        record |= {"timezone": of.timezone, "words": said}
        print_json(record | {"occurrences": [occurrence_record(line) for line in lines]})
        return
    console().print(plain(f"{said or 'This schedule does not resolve'}."), soft_wrap=True)
    if lines:
        print_occurrences(lines)
    else:
        console().print(plain(next_sentence(task) if task else "No occurrence after that moment."))


def _now() -> datetime:
    """By the database's clock, as every worker reckons."""
    with app_session() as app:
        return database_time(app)
