"""Queued, failed and direct commands: as --json prints them, and as tables of at most 100 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from sumaclock_dagster.cli.output import Times, console, plain
from sumaclock_dagster.cli.records import iso
from sumaclock_dagster.cli.views import make_table
from sumaclock_dagster.once.direct import DirectCommand
from sumaclock_dagster.once.queue import FailedCommand, QueuedCommand

SHOWN = 300
STYLES = {"due": "yellow", "running": "cyan", "cancelling": "cyan", "lost": "bold red", "retrying": "red"}


def queued_record(entry: QueuedCommand) -> dict[str, Any]:
    """A queued command for --json; timeout in seconds."""
    return {
        "jobid": entry.jobid,
        "queued_by": entry.queued_by,
        "state": entry.state,
        "command": entry.command,
        "priority": entry.priority,
        "attempts": entry.attempts,
        "max_attempts": entry.max_attempts,
        "queued_at": iso(entry.queued_at),
        "due_at": iso(entry.due_at),
        "started_at": iso(entry.started_at),
        "timeout_seconds": entry.timeout.total_seconds() if entry.timeout else None,
        "dedup_key": entry.dedup_key,
        "note": entry.note,
        "sqlstate": entry.sqlstate,
        "message": entry.message,
    }


def failed_record(entry: FailedCommand) -> dict[str, Any]:
    """A command that failed for good, for --json."""
    return {
        "jobid": entry.jobid,
        "queued_by": entry.queued_by,
        "command": entry.command,
        "attempts": entry.attempts,
        "max_attempts": entry.max_attempts,
        "queued_at": iso(entry.queued_at),
        "started_at": iso(entry.started_at),
        "failed_at": iso(entry.failed_at),
        "sqlstate": entry.sqlstate,
        "message": entry.message,
        "detail": entry.detail,
        "hint": entry.hint,
        "context": entry.context,
        "dedup_key": entry.dedup_key,
        "note": entry.note,
    }


def direct_record(entry: DirectCommand) -> dict[str, Any]:
    """A direct command for --json."""
    return {
        "clock_job": entry.name,
        "command": entry.command,
        "status": entry.status,
        "message": entry.message,
        "started_at": iso(entry.started_at),
        "ended_at": iso(entry.ended_at),
    }


def print_queue(found: Sequence[QueuedCommand], times: Times) -> None:
    """One command a row, with the error of its last attempt."""
    if not found:
        console().print("No command waits or runs.")
        return
    table = make_table(
        ID={"justify": "right"},
        STATE={"no_wrap": True},
        ATTEMPT={"no_wrap": True},
        **{"SINCE OR FROM": {"width": 20}, "COMMAND": {"ratio": 1}},
    )
    for entry in found:
        moment = entry.started_at or entry.due_at
        command = plain(_cut(entry.command))
        if entry.message:
            command.append_text(plain(f"\n{entry.sqlstate}: {_cut(entry.message)}", style="red"))
        state = Text(entry.state, style=STYLES.get(entry.state, ""))
        attempt = f"{entry.attempts} of {entry.max_attempts}"
        table.add_row(str(entry.jobid), state, attempt, times.minutes(moment), command)
    console().print(table)


def print_failed(found: Sequence[FailedCommand], times: Times) -> None:
    """One command a row, and below it what PostgreSQL said."""
    if not found:
        console().print("No command has failed for good.")
        return
    table = make_table(
        ID={"justify": "right"},
        FAILED={"width": 20},
        **{"COMMAND AND ERROR": {"ratio": 1}},
    )
    for entry in found:
        text = plain(_cut(entry.command))
        tries = f"attempt {entry.attempts} of {entry.max_attempts}"
        text.append_text(plain(f"\n{entry.sqlstate}, {tries}: {_cut(entry.message)}", style="red"))
        for more in (entry.detail, entry.hint):
            if more:
                text.append_text(plain(f"\n{_cut(more)}"))
        table.add_row(str(entry.jobid), times.minutes(entry.failed_at), text)
    console().print(table)


def print_direct(found: Sequence[DirectCommand], times: Times) -> None:
    """One direct command a row."""
    if not found:
        console().print("No direct command waits, and pg_cron's log has none.")
        return
    table = make_table(STATUS={"no_wrap": True}, STARTED={"width": 20}, **{"COMMAND AND ANSWER": {"ratio": 1}})
    for entry in found:
        text = plain(_cut(entry.command))
        if entry.message:
            text.append_text(plain(f"\n{_cut(entry.message)}", style="red" if entry.status == "failed" else ""))
        table.add_row(plain(entry.status), times.minutes(entry.started_at) if entry.started_at else "—", text)
    console().print(table)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
