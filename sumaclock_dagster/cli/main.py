"""The command `sumaclock`: its sub-commands, each imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

# Where each command is, and the beginning of its help.
COMMANDS = {
    "clock": ("clock", "This database's clock jobs in pg_cron."),
    "doctor": ("doctor", "Check settings, PostgreSQL and pg_cron"),
    "down": ("stack", "Stop what `sumaclock up` started, and nothing else."),
    "drift": ("drift", "Show every difference between the jobs and pg_cron"),
    "jobs": ("jobs", "Jobs: what is to run, and when (UTC)."),
    "metrics": ("metrics", "Serve metrics for Prometheus at /metrics"),
    "migrate": ("doctor", "Bring the schema up to date, as the owner role."),
    "once": ("once", "Commands that run once in the background, inside PostgreSQL"),
    "runs": ("runs", "Runs: the work orders that firings wrote."),
    "system": ("system", "System jobs: what workers do once in each period"),
    "tasks": ("tasks", "Tasks: what people asked for, in their own local time."),
    "up": ("stack", "Start PostgreSQL with pg_cron, Dagster and a demo job"),
}


class Commands(click.Group):
    """Holds stand-ins that have a name and a help, so that `--help` imports no command, and no command another."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, stand_in, rest = super().resolve_command(ctx, args)
        return name, stand_in and find_command(str(stand_in.name)), rest

    def invoke(self, ctx: click.Context) -> Any:
        from sumaclock_dagster.cli.refusals import refusals

        with refusals():
            return super().invoke(ctx)


def find_command(name: str) -> click.Command:
    command: click.Command = getattr(import_module(f"sumaclock_dagster.cli.{COMMANDS[name][0]}"), name)
    return command


@click.group(cls=Commands, commands=[click.Command(name, help=words) for name, (_, words) in COMMANDS.items()])
@click.version_option(package_name="sumaclock-dagster", prog_name="sumaclock")
def main() -> None:
    """Jobs that fire on time: pg_cron is the clock, Dagster the executor and the window.

    Settings come from SUMACLOCK_* variables. Exit codes: 1 refused by a rule, 2 wrong usage.
    """


if __name__ == "__main__":
    main()
