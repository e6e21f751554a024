"""Dagster's history as it grows: copies of a real Dagster run, with another id and another day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    ScheduleInstigatorData,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster_shared.error import SerializableErrorInfo

from sumaclock_dagster.db import Connection

TABLES = (
    "runs",
    "run_tags",
    "event_logs",
    "asset_check_executions",
    "asset_event_tags",
    "snapshots",
    "job_ticks",
    "instigators",
    "kvs",
    "bulk_actions",
    "concurrency_slots",
    "pending_steps",
    "daemon_heartbeats",
    "dynamic_partitions",
    "asset_keys",
)
ERROR = SerializableErrorInfo("it broke", [], None)
COPY_LOG = """
insert into event_logs (run_id, event, dagster_event_type, timestamp, step_key)
select %(new)s::text, replace(event, %(old)s::text, %(new)s::text), dagster_event_type,
       %(at)s::timestamptz at time zone 'UTC', step_key
from event_logs
where run_id = %(old)s::text and asset_key is null and coalesce(dagster_event_type, '') not like 'ASSET_CHECK%%'
"""
COPY_IN_BULK = (
    """
    insert into runs (run_id, snapshot_id, pipeline_name, mode, status, run_body, create_timestamp, update_timestamp)
    select %(new)s::text, %(job)s::text, pipeline_name, mode, status,
           replace(replace(replace(run_body, %(old)s::text, %(new)s::text), %(old_job)s::text, %(job)s::text),
                   %(old_plan)s::text, %(plan)s::text),
           %(at)s::timestamptz at time zone 'UTC', %(at)s::timestamptz at time zone 'UTC'
    from runs where run_id = %(old)s::text
    """,
    """
    insert into run_tags (run_id, key, value)
    select %(new)s::text, key, value from run_tags where run_id = %(old)s::text
    """,
    """
    insert into event_logs (run_id, event, dagster_event_type, timestamp, step_key, asset_key)
    select %(new)s::text, replace(event, %(old)s::text, %(new)s::text), dagster_event_type,
           %(at)s::timestamptz at time zone 'UTC', step_key, asset_key
    from event_logs where run_id = %(old)s::text
    """,
    """
    insert into asset_event_tags (event_id, asset_key, key, value, event_timestamp)
    select mine.id, tag.asset_key, tag.key, tag.value, mine.timestamp
    from event_logs as its join asset_event_tags as tag on tag.event_id = its.id
    join event_logs as mine on mine.asset_key = its.asset_key and mine.dagster_event_type = its.dagster_event_type
    where its.run_id = %(old)s::text and mine.run_id = %(new)s::text
    """,
    """
    insert into asset_check_executions (asset_key, check_name, run_id, execution_status, evaluation_event,
                                        evaluation_event_timestamp, create_timestamp)
    select asset_key, check_name, %(new)s::text, execution_status, evaluation_event,
           %(at)s::timestamptz at time zone 'UTC', %(at)s::timestamptz at time zone 'UTC'
    from asset_check_executions where run_id = %(old)s::text
    """,
)
COPY_SNAPSHOT = """
insert into snapshots (snapshot_id, snapshot_body, snapshot_type)
select %(new)s, snapshot_body, snapshot_type from snapshots where snapshot_id = %(old)s
on conflict do nothing
"""
AGE_RUN = """
update runs set create_timestamp = %(at)s::timestamptz at time zone 'UTC',
                update_timestamp = %(at)s::timestamptz at time zone 'UTC'
where run_id = %(run)s
"""


@dataclass(frozen=True)
class Growth:
    """instance: whose storage grows. storage: a connection to its database. logs: folder of the output of steps."""

    instance: dg.DagsterInstance
    storage: Connection
    logs: Path

    def copy_run(self, run_id: str, at: datetime, code: str = "", **changed: Any) -> str:
        """Another Dagster run like that one, of that moment, with its own events, check executions, tags, output and
        snapshots of this `code`. Asset events go through Dagster's storage, which keeps what is latest."""
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        new = str(uuid4())
        snapshots = {
            name: self._copy_snapshot(getattr(run, name), code)
            for name in ("job_snapshot_id", "execution_plan_snapshot_id")
        }
        self.instance.run_storage.add_run(run._replace(**{"run_id": new, **snapshots, **changed}))
        self.storage.execute(AGE_RUN, {"at": at, "run": new})
        for entry in self.instance.all_logs(run_id):
            event = entry.dagster_event
            if event and (event.asset_key or event.event_type_value.startswith("ASSET_CHECK")):
                self.instance.event_log_storage.store_event(entry._replace(run_id=new, timestamp=at.timestamp()))
        self.storage.execute(COPY_LOG, {"old": run_id, "new": new, "at": at})
        self.storage.execute(
            "update asset_check_executions set create_timestamp = %s::timestamptz at time zone 'UTC' where run_id = %s",
            [at, new],
        )
        self._write_output(new)
        return new

    def copy_in_bulk(self, run_id: str, moments: Sequence[datetime], code: str) -> None:
        """The same many times and faster: rows alone, of which Dagster's storage hears nothing."""
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        job, plan = run.job_snapshot_id, run.execution_plan_snapshot_id
        values = {"old": run_id, "old_job": job, "old_plan": plan}
        values |= {"job": self._copy_snapshot(job, code), "plan": self._copy_snapshot(plan, code)}
        for at in moments:
            new = str(uuid4())
            for statement in COPY_IN_BULK:
                self.storage.execute(statement, {**values, "new": new, "at": at})
            self._write_output(new)

    def add_ticks(self, state: InstigatorState, at: datetime, line: str = "said") -> None:
        """One tick of each status, with log lines."""
        for status in TickStatus:
            tick = self.instance.create_tick(
                TickData(
                    instigator_origin_id=state.instigator_origin_id,
                    instigator_name=state.instigator_name,
                    instigator_type=state.instigator_type,
                    status=status,
                    error=ERROR if status == TickStatus.FAILURE else None,
                    run_ids=[],
                    timestamp=at.timestamp(),
                    selector_id=state.selector_id,
                )
            )
            folder = self.logs / state.origin.repository_origin.repository_name / state.instigator_name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{tick.tick_id}.err").write_text(line)

    def add_instigator(self, name: str, kind: InstigatorType, location: str) -> InstigatorState:
        origin = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "__repository__")
        data = ScheduleInstigatorData("11 * * * *") if kind == InstigatorType.SCHEDULE else SensorInstigatorData()
        state = InstigatorState(RemoteInstigatorOrigin(origin, name), kind, InstigatorStatus.RUNNING, data)
        return self.instance.add_instigator_state(state)

    def counts(self) -> dict[str, int]:
        """Rows of each of Dagster's tables, and files."""
        found = {table: self._one(f"select count(*) from {table}") for table in TABLES}
        return found | {"files": sum(1 for path in self.logs.rglob("*") if path.is_file())}

    def vacuum(self) -> None:
        """As autovacuum does."""
        for table in ("runs", "run_tags", "event_logs", "asset_check_executions", "asset_event_tags", "snapshots"):
            self.storage.execute(f"vacuum {table}")

    def sizes(self) -> dict[str, int]:
        """Bytes of each table with its indexes."""
        return {table: self._one(f"select pg_total_relation_size('{table}')") for table in TABLES}

    def _one(self, statement: str) -> int:
        row = self.storage.execute(statement).fetchone()
        assert row is not None
        return int(row[0])

    def _write_output(self, run_id: str) -> None:
        folder = self.logs / run_id / "compute_logs"
        folder.mkdir(parents=True)
        (folder / "step.out").write_text("said")

    def _copy_snapshot(self, snapshot_id: str | None, code: str) -> str | None:
        if snapshot_id is None or not code:
            return snapshot_id
        new = f"{snapshot_id[:20]}-{code}"
        self.storage.execute(COPY_SNAPSHOT, {"old": snapshot_id, "new": new})
        return new
