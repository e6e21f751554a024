"""What the commands share: sessions, options, and the forms of times and texts."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click
from rich.console import Console
from rich.text import Text

from sumaclock_dagster.clock.pg_cron import Clock, ClockJob, open_clock
from sumaclock_dagster.clock.placing import read_standing
from sumaclock_dagster.clock.reach import connect_or_refuse
from sumaclock_dagster.clock.slots import SLOT_PREFIX, slot_id
from sumaclock_dagster.db import Connection
from sumaclock_dagster.model import Job, SumaclockError
from sumaclock_dagster.settings import Settings

WIDTH = 100


@contextmanager
def app_session() -> Iterator[Connection]:
    """An open connection to the app database that the environment names."""
    with connect_or_refuse(Settings().app_url, "sumaclock cli", "SUMACLOCK_DATABASE_URL") as app:
        yield app


@contextmanager
def clock_session() -> Iterator[tuple[Connection, Clock]]:
    """The app database and its clock."""
    settings = Settings()
    with app_session() as app, open_clock(app, settings.cron_url, settings.clock) as clock:
        yield app, clock


@dataclass(frozen=True, slots=True)
class Firing:
    """What fires a job: its clock job, or that of its slot. fault: why it cannot be told, as a job can be shown without
    its clock."""

    clock_job: ClockJob | None = None
    in_slot: bool = False
    fault: str | None = None


def find_firing(app: Connection, clock: Clock, job: Job) -> Firing:
    standing = read_standing(app, job.id)
    in_slot = standing is not None and standing.enabled and standing.in_slot
    try:
        found = clock.find(slot_id(job.schedule), SLOT_PREFIX) if in_slot else clock.find(job.id)
    except SumaclockError as error:
        return Firing(None, in_slot, str(error))
    return Firing(found, in_slot)


class ZoneName(click.ParamType[Any]):
    """An IANA time zone."""

    name = "zone"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tzinfo):
            return value
        try:
            return ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            self.fail(f"{value!r} is no IANA time zone; write for example Europe/Madrid.", param, ctx)


Command = Callable[..., Any]


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON with times in ISO 8601, UTC.")(command)


def tz_option(command: Command) -> Command:
    return click.option("--tz", type=ZoneName(), help="Your IANA time zone. Default: the system's.")(command)


def read_payload(text: str) -> Any:
    """The value of --payload: JSON, or where to read it. Raises click.BadParameter."""
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        return json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--payload") from None


@dataclass(frozen=True, slots=True)
class Times:
    """Shows times in UTC and in the viewer's zone (None: the system's)."""

    zone: tzinfo | None

    def utc(self, moment: datetime) -> str:
        return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

    def local(self, moment: datetime) -> str:
        return f"{moment.astimezone(self.zone):%Y-%m-%d %H:%M:%S %Z}"

    def minutes(self, moment: datetime) -> str:
        """Both, on two lines and to the minute."""
        utc = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        local = f"{moment.astimezone(self.zone):%Y-%m-%d %H:%M %Z}"
        return utc if utc == local else f"{utc}\n{local}"

    def both(self, moment: datetime | None) -> str:
        """UTC, then local time where the viewer is not in UTC; a dash for no time."""
        if moment is None:
            return "—"
        utc, local = self.utc(moment), self.local(moment)
        return utc if utc == local else f"{utc} = {local}"


def console() -> Console:
    """Tables fit 100 columns, or the terminal where that is narrower; a pipe has no width and gets 100."""
    found = Console(highlight=False, markup=False, emoji=False)
    return Console(
        width=min(WIDTH, found.width) if found.is_terminal else WIDTH, highlight=False, markup=False, emoji=False
    )


def plain(value: object, style: str = "") -> Text:
    """Text of anybody's making, without the control and direction characters that could forge what is on screen."""
    shown = (
        char if char == "\n" or unicodedata.category(char)[0] != "C" else f"\\x{ord(char):02x}" for char in str(value)
    )
    return Text("".join(shown), style=style)


def tell_limit(found: Sized, limit: int) -> None:
    """Say on stderr that a list may go on where it ends."""
    if len(found) == limit:
        click.echo(f"Only the newest {limit}; --limit shows more.", err=True)


def print_json(value: Any, *, one_line: bool = False) -> None:
    click.echo(json.dumps(value, indent=None if one_line else 2))


def duration(seconds: float | None) -> str:
    """'12 ms', '3.4 s', '5 min', '2.1 h' or '3 d'; a dash for none."""
    if seconds is None:
        return "—"
    for unit, size in (("d", 172_800), ("h", 7_200), ("min", 300)):
        if abs(seconds) >= size:
            divisor = {"d": 86_400, "h": 3_600, "min": 60}[unit]
            return f"{seconds / divisor:.1f} {unit}"
    return f"{seconds:.1f} s" if abs(seconds) >= 1 else f"{seconds * 1000:.0f} ms"
