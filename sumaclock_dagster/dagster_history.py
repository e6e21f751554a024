"""What Dagster's own functions leave behind when Dagster runs are deleted, looked for in Dagster's database.

Small batches, each a transaction of its own. Every function takes a connection made by `open_storage`; `before` is an
aware moment, and what is younger stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import errors

from sumaclock_dagster.db import Connection, connect, query
from sumaclock_dagster.model import SumaclockError

BATCH = 1000
TABLES = ("runs", "event_logs", "snapshots", "asset_check_executions", "asset_event_tags", "instance_info")


@dataclass(frozen=True, slots=True)
class Owned:
    """Whose leftovers are looked for. jobs: names. assets: keys as Dagster stores them, like '["clock_health"]'.

    kept: ids of Dagster runs whose events stay in any case.
    """

    jobs: Sequence[str]
    assets: Sequence[str]
    kept: Sequence[str] = ()


def open_storage(dagster_url: str, purpose: str) -> Connection:
    """A connection to Dagster's database by its URL, which names SQLAlchemy's driver. Raises SumaclockError."""
    scheme, _, rest = dagster_url.partition("://")
    try:
        return connect(f"{scheme.partition('+')[0]}://{rest}", f"sumaclock {purpose}")
    except psycopg.Error as error:
        raise SumaclockError(
            f"Dagster's database can't be reached ({type(error).__name__}). See SUMACLOCK_DAGSTER_DATABASE_URL; "
            "`sumaclock doctor` says what is wrong."
        ) from None


def why_not_storage(storage: Connection, run_storage_id: str) -> str:
    """Why this is not the database in which the Dagster instance with that id keeps its runs; '' where it is."""
    found = {row[0] for row in storage.execute(query("list_dagster_tables"), {"names": list(TABLES)})}
    lacking = [name for name in TABLES if name not in found]
    if lacking:
        return f"It has no table {', '.join(lacking)}."
    row = storage.execute(query("read_dagster_storage_id")).fetchone()
    return "" if row is not None and row[0] == run_storage_id else "It is another Dagster instance's."


def runless_events(storage: Connection, owned: Owned, before: datetime, batch: int = BATCH) -> Iterator[list[str]]:
    """Ids of Dagster runs of ours that are gone and whose events are still there, for Dagster to delete."""
    after: str | None = ""
    while after is not None:
        values = {"after": after, "batch": batch, "before": before, "jobs": owned.jobs, "kept": owned.kept}
        after, run_ids = storage.execute(query("list_runless_dagster_events"), _lists(values)).fetchall()[0]
        yield run_ids


def prune_checks(storage: Connection, owned: Owned, before: datetime, batch: int = BATCH) -> Iterator[int]:
    """Delete executions of checks of our assets whose Dagster run is gone, except what each check last said."""
    return _walk(storage, "prune_batch_of_dagster_checks", owned, before, batch)


def prune_tags(storage: Connection, owned: Owned, before: datetime, batch: int = BATCH) -> Iterator[int]:
    """Delete tags of events of our assets that are gone."""
    return _walk(storage, "prune_batch_of_dagster_tags", owned, before, batch)


def delete_spent_snapshots(storage: Connection, jobs: Sequence[str], plans: Sequence[str]) -> int:
    """Delete these snapshots of jobs and of execution plans, as far as no Dagster run has them any more.

    `jobs` holds the jobs' snapshots of all `plans`. Returns how many.
    """
    try:
        values = {"jobs": list(jobs), "plans": list(plans)}
        return storage.execute(query("delete_spent_dagster_snapshots"), values).rowcount
    except errors.ForeignKeyViolation:
        # A Dagster run that needs one came in between. Whoever deletes the last that does frees it.
        return 0


def _walk(storage: Connection, name: str, owned: Owned, before: datetime, batch: int) -> Iterator[int]:
    after: int | None = 0
    past = True
    while past and after is not None:
        values = _lists({"after": after, "batch": batch, "before": before, "assets": owned.assets})
        row = storage.execute(query(name), values).fetchone()
        after, past, deleted = row or (None, False, 0)
        yield deleted


def _lists(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
