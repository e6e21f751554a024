"""Jobs and runs as people read them: tables and lines of at most 100 columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from sumaclock_dagster.cli.output import Firing, Times, console, duration, plain
from sumaclock_dagster.cli.records import next_firing, seconds_between
from sumaclock_dagster.clock.command import firing_command, is_careful, skips, slot_firing_command
from sumaclock_dagster.model import Job, Run

STYLES = {"pending": "yellow", "running": "cyan", "done": "green", "failed": "bold red", "skipped": "dim"}


def print_jobs(jobs: Sequence[Job], now: datetime, times: Times) -> None:
    """One job a row: id, kind, owner, schedule and when it fires next."""
    if not jobs:
        console().print("No jobs. `sumaclock jobs add` creates one.")
        return
    table = make_table(
        JOB={"width": 36, "no_wrap": True},
        KIND={"max_width": 12, "no_wrap": True},
        OWNER={"max_width": 14, "no_wrap": True},
        SCHEDULE={"max_width": 14},
        **{"FIRES NEXT": {"width": 20, "no_wrap": True}},
    )
    for job in jobs:
        fires = next_firing(job, now)
        shown = times.minutes(fires) if fires else Text("never" if job.enabled else "paused", style="dim")
        table.add_row(str(job.id), plain(job.kind), _owner(job), plain(job.schedule), shown)
    console().print(table)


def print_job(job: Job, now: datetime, clock: str, times: Times) -> None:
    """All about one job."""
    table = Table(box=None, pad_edge=False, show_header=False)
    fires = times.both(next_firing(job, now)) if job.enabled else "paused"
    for name, shown in (
        ("job", Text(str(job.id))),
        ("kind", plain(job.kind)),
        ("owner", _owner(job)),
        ("schedule", plain(f"{job.schedule} (UTC)")),
        ("fires next", Text(fires)),
        ("clock job", plain(clock)),
        ("when missed", Text("fires once, late" if job.catch_up == "one" else "is skipped")),
        ("overlap", Text(_overlap(job))),
        ("created", Text(times.both(job.created_at))),
        ("changed", Text(times.both(job.updated_at))),
        ("payload", _json(job.payload)),
    ):
        table.add_row(Text(name, style="bold"), shown)
    console().print(table)


def clock_words(job: Job, firing: Firing) -> str:
    """Whether pg_cron holds what the row says."""
    found, remedy = firing.clock_job, "`sumaclock jobs resume` places it"
    if firing.fault is not None:
        return f"unknown: {firing.fault}"
    if found is None:
        return f"MISSING: it does not fire; {remedy}" if job.enabled else "none, as it is paused"
    if not job.enabled:
        return "LEFT OVER: it fires for nothing; `sumaclock jobs pause` removes it"
    command = firing_command(job.id, careful=is_careful(job.schedule, job.overlap))
    if firing.in_slot:
        command = slot_firing_command(found.job_id)
    if (found.schedule, found.command) != (job.schedule, command) or not found.active:
        return f"DIFFERS from the job; {remedy} anew"
    return f"in place (pg_cron jobid {found.jobid}{', of its slot' if firing.in_slot else ''})"


def print_runs(runs: Sequence[Run], times: Times) -> None:
    """One run a row, with the beginning of its error."""
    if not runs:
        console().print("No runs.")
        return
    table = make_table(
        RUN={"justify": "right", "no_wrap": True},
        STATUS={"no_wrap": True},
        KIND={"max_width": 14, "no_wrap": True},
        OWNER={"max_width": 14, "no_wrap": True},
        **{"MEANT FOR": {"width": 20, "no_wrap": True}},
        LATE={"justify": "right", "no_wrap": True, "min_width": 6},
        TOOK={"justify": "right", "no_wrap": True, "min_width": 6},
        ERROR={"max_width": 20, "no_wrap": True},
    )
    for run in runs:
        table.add_row(
            str(run.id),
            _status(run),
            plain(run.kind),
            _owner(run),
            times.minutes(run.scheduled_at),
            duration(seconds_between(run.scheduled_at, run.started_at)),
            duration(seconds_between(run.started_at, run.finished_at)),
            plain((run.error or "").partition("\n")[0]),
        )
    console().print(table)


def print_run(run: Run, times: Times) -> None:
    """All about one run."""
    table = Table(box=None, pad_edge=False, show_header=False)
    late = duration(seconds_between(run.scheduled_at, run.started_at))
    took = duration(seconds_between(run.started_at, run.finished_at))
    for name, shown in (
        ("run", Text(str(run.id))),
        ("status", _status(run)),
        ("job", Text(str(run.job_id))),
        ("kind", plain(run.kind)),
        ("owner", _owner(run)),
        ("trigger", Text(run.trigger.value)),
        ("meant for", Text(times.both(run.scheduled_at))),
        ("due", Text(times.both(run.due_at))),
        ("started", Text(f"{times.both(run.started_at)}, late by {late}" if run.started_at else "—")),
        ("finished", Text(f"{times.both(run.finished_at)}, took {took}" if run.finished_at else "—")),
        ("attempts", Text(f"{run.attempts}, {run.lost} of them lost with their worker")),
        ("worker", Text(_worker(run.claimed_by))),
        ("Dagster run", Text(str(run.dagster_run_id or "—"))),
        ("result", _json(run.result)),
        ("error", plain(run.error or "—")),
    ):
        table.add_row(Text(name, style="bold"), shown)
    console().print(table)


def _worker(claimed_by: int | None) -> str:
    if claimed_by == -1:
        return "none: a Dagster run of its own executes it"
    return str(claimed_by) if claimed_by else "—"


def print_end(run: Run, times: Times) -> None:
    """A run that ended, on one line."""
    late, took = seconds_between(run.scheduled_at, run.started_at), seconds_between(run.started_at, run.finished_at)
    line = Text.assemble(
        times.utc(run.finished_at or run.due_at)[11:],
        "  ",
        (f"{run.status.value:<7}", STYLES[run.status.value]),
        f"  run {run.id}  ",
        plain(run.kind),
        "  ",
        _owner(run),
        f"  meant for {run.scheduled_at:%H:%M}, late {duration(late)}, took {duration(took)}  ",
        plain((run.error or "").partition("\n")[0], "red"),
    )
    console().print(line, no_wrap=True, overflow="ellipsis")


def make_table(**columns: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name, options in columns.items():
        table.add_column(name, overflow="ellipsis" if options.get("no_wrap") else "fold", **options)
    return table


def _overlap(job: Job) -> str:
    skip = skips(job.schedule, job.overlap)
    words = "skip: no firing while a run is pending or running" if skip else "allow: fires whatever still runs"
    return f"{words} (auto)" if job.overlap == "auto" else words


def _owner(of: Job | Run) -> Text:
    return plain(f"{of.organization_id}/{of.user_id}")


def _status(run: Run) -> Text:
    return Text(run.status.value, style=STYLES[run.status.value])


def _json(value: object) -> Text:
    return plain(json.dumps(value, indent=2, ensure_ascii=False))
