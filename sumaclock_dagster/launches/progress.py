"""What becomes of launches: offered to Dagster, found there, and ended. Knows Dagster runs by their ids only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.rows import class_row

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.launches.target import Target, parse_target
from sumaclock_dagster.launches.templates import iso_minute
from sumaclock_dagster.storable import clean_text

ERROR_MAX_CHARS = 20_000
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Offered:
    """A launch that Dagster is to be asked for now. `target` is the payload with its templates filled in."""

    id: int
    cron_run_id: int
    job_id: UUID
    task_id: UUID | None
    scheduled_for: datetime
    launch_key: UUID
    organization_id: str
    user_id: str
    target: Any
    offers: int

    def parsed(self) -> Target:
        return parse_target(self.target)

    def tags(self) -> dict[str, str]:
        """The target's tags and those that lead from the Dagster run to its run, job, task and owner."""
        own = {
            "sumaclock/run": str(self.cron_run_id),
            "sumaclock/job": str(self.job_id),
            "sumaclock/organization": self.organization_id,
            "sumaclock/scheduled_for": iso_minute(self.scheduled_for),
            "sumaclock/launch": str(self.launch_key),
        }
        task = {} if self.task_id is None else {"sumaclock/task": str(self.task_id)}
        return {**self.parsed().tags, **own, **task}


class Sought(NamedTuple):
    """A launch that was offered and not found yet."""

    id: int
    cron_run_id: int
    launch_key: UUID


class Launched(NamedTuple):
    """seconds: since it was found in Dagster. seen_on: the machine that its process was seen on, "" where it was looked
    for and not seen, None before."""

    id: int
    dagster_run_id: UUID
    seconds: float
    seen_on: str | None


@dataclass(frozen=True, slots=True)
class End:
    """How a launch ended: `error` None means done. `result`: JSON-able."""

    id: int
    error: str | None = None
    result: Mapping[str, Any] | None = None


def listen(conn: Connection) -> None:
    """Let `wait` on this connection hear of launches that are asked for from now on."""
    conn.execute(query("listen_to_launches"))


def wait(conn: Connection, seconds: float) -> None:
    """Wait until a launch is asked for, for `seconds` at most."""
    for _ in conn.notifies(timeout=max(0.0, seconds), stop_after=1):
        pass


def offer(conn: Connection, *, location: str, assets: bool, most: int, lease_seconds: float) -> list[Offered]:
    """Up to `most` launches that Dagster is to be asked for; nobody else gets them for `lease_seconds`.

    assets: those of assets in `location`, this code location; else all others.
    """
    values = {"location": location, "assets": assets, "most": most, "lease": lease_seconds}
    return conn.cursor(row_factory=class_row(Offered)).execute(query("offer_launches"), values).fetchall()


def sought(conn: Connection) -> list[Sought]:
    """Up to 1,000 launches that were offered and not found yet."""
    return [Sought(*row) for row in conn.execute(query("list_offered_launches")).fetchall()]


def note_launched(conn: Connection, found: Mapping[int, str]) -> None:
    """Note the Dagster run ids by launch id, also in the runs of the queue."""
    if found:
        conn.execute(query("note_launched"), {"ids": list(found), "dagster_runs": list(found.values())})


def follow_retry(conn: Connection, launch_id: int, dagster_run_id: str) -> None:
    """The launch goes on in another Dagster run, by which Dagster retries the one before."""
    conn.execute(query("follow_retry"), {"id": launch_id, "dagster_run": dagster_run_id})


def postpone(conn: Connection, launch_ids: Sequence[int], seconds: float) -> None:
    """Ask again in `seconds`: Dagster could not be asked."""
    conn.execute(query("postpone_launches"), {"ids": list(launch_ids), "seconds": seconds})


def launched(conn: Connection, after: int = 0) -> list[Launched]:
    """Up to 1,000 launches with a Dagster run that has not ended as far as is known; ids above `after`."""
    rows = conn.execute(query("list_launched"), {"after": after, "most": PAGE}).fetchall()
    return [Launched(*row) for row in rows]


def note_seen(conn: Connection, seen_on: Mapping[int, str]) -> None:
    """Note by launch id on which machine the processes of Dagster runs were seen, "" for those that were not."""
    if seen_on:
        conn.execute(query("note_seen"), {"ids": list(seen_on), "seen_on": list(seen_on.values())})


def any_open(conn: Connection) -> bool:
    """Whether a launch is requested or under way."""
    return conn.execute(query("has_open_launches")).fetchone() == (True,)


def end(conn: Connection, ends: Sequence[End]) -> int:
    """End launches, their runs and their task runs. Returns how many ended; who ended before stays as it is."""
    if not ends:
        return 0
    values = {
        "ids": [e.id for e in ends],
        "outcomes": ["done" if e.error is None else "failed" for e in ends],
        "errors": [
            None if e.error is None else clean_text(e.error or "No reason was given.", ERROR_MAX_CHARS) for e in ends
        ],
        "results": [None if e.result is None else json.dumps(e.result) for e in ends],
    }
    return len(conn.execute(query("end_launches"), values).fetchall())
