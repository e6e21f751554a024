"""What the commands about tasks are given: a schedule in somebody's own time, and a language."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from sumaclock_dagster.calendar import instant_at
from sumaclock_dagster.calendar.zones import zone_named

MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)? ?(Z|[+-]\d\d:?\d\d)?")
AT_EXAMPLE = "'2026-12-01 09:00' (on the clocks of --timezone) or '2026-12-01T09:00+01:00'"
Command = Callable[..., Any]


class Moment(click.ParamType[Any]):
    """An ISO 8601 date and time, with a UTC offset or without."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, datetime):
            return value
        text = value.strip()
        if MOMENT.fullmatch(text):
            try:
                return datetime.fromisoformat(text.replace(" +", "+").replace(" -", "-").replace(" Z", "Z"))
            except ValueError:
                pass
        self.fail(f"{value!r} is no date and time; write for example {AT_EXAMPLE}.", param, ctx)


def schedule_options(command: Command) -> Command:
    """--cron, --at and --timezone."""
    options = (
        click.option("--cron", help="Five cron fields in local time, for example '0 9 * * MON'."),
        click.option("--at", type=Moment(), help=f"One moment instead: {AT_EXAMPLE}."),
        click.option("--timezone", help="IANA zone whose clocks count.  [default: Europe/Madrid]"),
    )
    for option in reversed(options):
        command = option(command)
    return command


def language_option(command: Command) -> Command:
    choice = click.Choice(["en", "es"])
    return click.option("--language", type=choice, default="en", show_default=True, help="Of schedules in words.")(
        command
    )


def moment_in(at: datetime | None, timezone: str) -> datetime | None:
    """An aware instant: `at` as it is where it has an offset, else on the clocks of `timezone`. Raises SumaclockError
    for an unknown zone."""
    zone_named(timezone)
    return instant_at(at, timezone) if at is not None and at.tzinfo is None else at
