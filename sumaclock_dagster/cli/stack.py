"""`sumaclock up` and `sumaclock down`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import click

from sumaclock_dagster.cli.shows import JsonLines, Terminal
from sumaclock_dagster.embedded.processes import POLL_SECONDS
from sumaclock_dagster.embedded.show import Show
from sumaclock_dagster.embedded.stack import UpOptions, run_down, run_up
from sumaclock_dagster.embedded.up_file import only_one, read_up_file
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.settings import Settings

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, times in ISO 8601, UTC.")
HOME = click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="SUMACLOCK_HOME",
    help="Folder of the private cluster and of logs.  [default: SUMACLOCK_HOME, or .sumaclock]",
)


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the UI.  [default: the first free from 3000 on]")
@click.option("--no-demo", is_flag=True, help="Make no demo job.")
@click.option("--detach", is_flag=True, help="Leave it running in the background; `sumaclock down` stops it.")
@JSON
@HOME
def up(port: int | None, no_demo: bool, detach: bool, as_json: bool, home: Path | None) -> None:
    """Start PostgreSQL with pg_cron, Dagster and a demo job, and show each run. Ctrl-C stops it all.

    With SUMACLOCK_DATABASE_URL set, that server is checked and used instead of a private one.
    """
    settings = _settings(home)
    if detach:
        _up_in_background(settings, port, no_demo, as_json)
    else:
        run_up(settings, UpOptions(port, not no_demo), _show(as_json))


@click.command()
@JSON
@HOME
def down(as_json: bool, home: Path | None) -> None:
    """Stop what `sumaclock up` started, and nothing else."""
    run_down(_settings(home), _show(as_json))


def _show(as_json: bool) -> Show:
    return JsonLines() if as_json else Terminal()


def _settings(home: Path | None) -> Settings:
    return Settings() if home is None else Settings(home=home)


def _up_in_background(settings: Settings, port: int | None, no_demo: bool, as_json: bool) -> None:
    home = settings.home.absolute()
    with only_one(home):
        pass
    logs = home / "logs"
    logs.mkdir(mode=0o700, exist_ok=True)
    file = logs / "up.log"
    file.unlink(missing_ok=True)
    options = [*(["--port", str(port)] if port else []), *(["--no-demo"] if no_demo else [])]
    options += ["--json"] if as_json else []
    command = [sys.executable, "-m", "sumaclock_dagster.cli.main", "up", "--home", str(home), *options]
    with file.open("ab") as log:
        # Its own session: the end of this terminal is not its end.
        supervisor = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
    try:
        _follow(supervisor, home, file)
        _show(as_json).say(f"It goes on in the background and writes to {file}. Stop it with `bin/down`.")
    except KeyboardInterrupt:
        supervisor.terminate()
        supervisor.wait()
        raise


def _follow(supervisor: subprocess.Popen[bytes], home: Path, file: Path) -> None:
    """Show what the supervisor writes until it is ready. Raises SumaclockError when it ends instead."""
    with file.open(encoding="utf-8", errors="replace") as log:
        while True:
            ended = supervisor.poll() is not None
            state = read_up_file(home)
            ready = state is not None and state.ready and state.supervisor.pid == supervisor.pid
            if text := log.read():
                click.echo(text, nl=False)
            if ended:
                raise SumaclockError(f"It did not start; what it said is above and in {file}.")
            if ready:
                return
            time.sleep(POLL_SECONDS)
