"""The command `sumaclock`: its sub-commands, gathered by name."""

from __future__ import annotations

import click

from sumaclock_dagster.cli.clock import clock
from sumaclock_dagster.cli.doctor import doctor, migrate
from sumaclock_dagster.cli.drift import drift
from sumaclock_dagster.cli.jobs import jobs
from sumaclock_dagster.cli.metrics import metrics
from sumaclock_dagster.cli.once import once
from sumaclock_dagster.cli.output import RefusingGroup
from sumaclock_dagster.cli.runs import runs
from sumaclock_dagster.cli.stack import down, up
from sumaclock_dagster.cli.system import system
from sumaclock_dagster.cli.tasks import tasks


@click.group(cls=RefusingGroup)
@click.version_option(package_name="sumaclock-dagster", prog_name="sumaclock")
def main() -> None:
    """Jobs that fire on time: pg_cron is the clock, Dagster the executor and the window.

    Settings come from SUMACLOCK_* variables. Exit codes: 1 refused by a rule, 2 wrong usage.
    """


for command in (up, down, doctor, migrate, tasks, jobs, runs, once, system, drift, clock, metrics):
    main.add_command(command)


if __name__ == "__main__":
    main()
