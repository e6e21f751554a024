"""`sumaclock system`: the system jobs that are registered in code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from sumaclock_dagster.cli.output import (
    Times,
    app_session,
    console,
    duration,
    json_option,
    plain,
    print_json,
    tz_option,
)
from sumaclock_dagster.cli.records import iso
from sumaclock_dagster.cli.refusals import RefusingGroup
from sumaclock_dagster.cli.views import make_table
from sumaclock_dagster.handlers import load_handlers
from sumaclock_dagster.own_handlers import own_handlers
from sumaclock_dagster.queue.system_jobs import SystemJobState, list_system_jobs
from sumaclock_dagster.settings import Settings


@click.group(cls=RefusingGroup)
def system() -> None:
    """System jobs: what workers do once in each period, whichever comes first."""


@system.command("list")
@json_option
@tz_option
def list_(as_json: bool, tz: Any) -> None:
    """List the system jobs with their last run, error and next period."""
    settings = Settings()
    jobs = load_handlers(settings.handlers, own_handlers(settings)).system_jobs
    with app_session() as app:
        states = list_system_jobs(app, jobs.values())
    if as_json:
        print_json([system_job_record(state) for state in states])
    else:
        print_system_jobs(states, Times(tz))


def system_job_record(state: SystemJobState) -> dict[str, Any]:
    """A system job for --json. ended_at, duration_seconds, result, error: of the last run that ended."""
    return {
        "name": state.name,
        "every_seconds": state.every_seconds,
        "state": state.word,
        "period": iso(state.period),
        "started_at": iso(state.started_at),
        "attempts": state.attempts,
        "worker_id": state.worker_id,
        "ended_at": iso(state.ended_at),
        "duration_seconds": state.duration_seconds,
        "result": state.result,
        "error": state.error,
        "next_period": iso(state.next_period),
    }


def print_system_jobs(states: Sequence[SystemJobState], times: Times) -> None:
    """One system job a row, with the beginning of its error."""
    if not states:
        console().print("No system jobs are registered.")
        return
    table = make_table(
        NAME={"max_width": 20, "no_wrap": True},
        EVERY={"justify": "right", "no_wrap": True},
        STATE={"no_wrap": True},
        **{"LAST BEGAN": {"width": 20, "no_wrap": True}},
        TOOK={"justify": "right", "no_wrap": True, "min_width": 6},
        **{"NEXT PERIOD": {"width": 20, "no_wrap": True}},
        ERROR={"max_width": 20, "no_wrap": True},
    )
    for state in states:
        table.add_row(
            plain(state.name),
            f"{state.every_seconds} s",
            state.word,
            times.minutes(state.started_at) if state.started_at else "—",
            duration(state.duration_seconds),
            times.minutes(state.next_period),
            plain((state.error or "").partition("\n")[0]),
        )
    console().print(table)
