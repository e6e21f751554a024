"""What the tests of tasks share: a task kind whose effects can be counted, workers, and what the database says."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.model import Run
from sumaclock_dagster.outbox import queue_delivery
from sumaclock_dagster.queue.runs import get_run
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.handler import Doors, task_handlers
from sumaclock_dagster.tasks.kinds import TaskKinds, TaskRun
from sumaclock_dagster.tasks.records import Task
from sumaclock_dagster.worker import Worker
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.waiting import until
from tests.workers import await_ended, running

WEEKLY = "0 9 * * MON"
# Settled again soon after a failure.
EAGER = {"task_backoff_seconds": 0.1, "task_backoff_max_seconds": 0.2}


@contextmanager
def task_database(cluster: TestCluster) -> Iterator[AppDatabase]:
    """An app database for all tests of a module, with room for the effects of the kind `effect`."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        made = make_app_database(cluster, name)
        with connect(made.superuser_url, "test superuser") as superuser:
            make_task_effects(superuser)
        yield made
    finally:
        drop_app_database(cluster, name)


def effect_kinds() -> TaskKinds:
    """Kind `effect` inserts one row into public.task_effects through the connection that it is lent, and queues a
    request to core-api. Its payload may say how it ends: {"raise_until": attempt} raises in earlier attempts,
    {"break_sql": true} fails in PostgreSQL."""
    kinds = TaskKinds()

    @kinds.register("effect", max_attempts=3, backoff_seconds=0.05, backoff_max_seconds=0.1, together=True)
    def effect(run: TaskRun) -> dict[str, Any]:
        run.connection.execute(
            "insert into public.task_effects (key, task_id, scheduled_for, trigger, attempt, said)"
            " values (%s, %s, %s, %s, %s, %s)",
            [
                run.idempotency_key,
                run.task_id,
                run.scheduled_for,
                run.trigger.value,
                run.attempt,
                run.payload.get("say"),
            ],
        )
        queue_delivery(
            run.connection,
            idempotency_key=run.idempotency_key,
            organization_id=run.organization_id,
            user_id=run.user_id,
            path="/effects",
        )
        if run.attempt < run.payload.get("raise_until", 0):
            raise RuntimeError(f"not before attempt {run.payload['raise_until']}")
        if run.payload.get("break_sql"):
            run.connection.execute("select 1 / 0")
        return {"said": run.payload.get("say")}

    return kinds


def check_access(conn: Connection, organization_id: str, user_id: str) -> Any:
    """An access check by SUMACLOCK_ACCESS_CHECK: the organisation's name says what it answers."""
    match organization_id:
        case "expelled":
            return "Expelled on Tuesday."
        case "refused":
            return False
        case "unsaid":
            return None
        case "unsure":
            raise RuntimeError("the directory is away")
    return user_id != "nobody"


def make_task_effects(superuser: Connection) -> None:
    """The table of the effects."""
    superuser.execute(
        "create table public.task_effects (id bigint generated always as identity, key text, task_id uuid,"
        " scheduled_for timestamptz, trigger text, attempt int, said text, at timestamptz default clock_timestamp());"
        "grant select, insert on public.task_effects to public"
    )


@contextmanager
def task_worker(app_db: AppDatabase, kinds: TaskKinds | None = None, **settings: Any) -> Iterator[Worker]:
    """A worker in this process that settles tasks."""
    values = app_db.settings.model_copy(update={**EAGER, **settings})
    doors = Doors(values)
    handlers = task_handlers(values, effect_kinds() if kinds is None else kinds, doors)
    try:
        with running(app_db, handlers, **{**EAGER, **settings}) as worker:
            yield worker
    finally:
        doors.close()


def add_task(app: Connection, payload: Any = None, **arguments: Any) -> UUID:
    """A task of kind `effect`, made by the SQL function. Weekly, unless a cron or an instant is given."""
    if not {"cron", "instant"} & arguments.keys():
        arguments["cron"] = WEEKLY
    values = {
        "organization_id": "acme",
        "user_id": "ada",
        "kind": "effect",
        "payload": Jsonb(payload or {}),
        **arguments,
    }
    row = call(app, "create_task", **{**values, **arguments})
    assert isinstance(row, UUID)
    return row


def call(app: Connection, function: str, **arguments: Any) -> Any:
    """Call a SQL function of ours with named arguments, as an app in any language would."""
    named = ", ".join(f"{name} => %({name})s" for name in arguments)
    row = app.execute(f"select sumaclock.{function}({named})", arguments).fetchone()
    assert row is not None
    return row[0]


def settled(app: Connection, task_id: UUID, timeout_seconds: float = 15) -> Task:
    """The task once no run of it is open that is due."""
    task = api.get(app, task_id)

    def is_open() -> bool:
        row = app.execute(
            "select exists (select from sumaclock.cron_runs"
            " where job_id = %s and finished_at is null and due_at <= now())",
            [task.cron_job_id],
        ).fetchone()
        return row == (True,)

    until(lambda: not is_open(), timeout_seconds, f"task {task_id} to be settled")
    return api.get(app, task_id)


def make_due(app: Connection, task_id: UUID, minutes_ago: int = 0) -> datetime:
    """Let the next occurrence of a placed task be the current minute, or an earlier one. Returns it."""
    row = app.execute(
        "update sumaclock.ai_tasks set next_run_at = date_trunc('minute', now()) - %s * interval '1 minute'"
        " where id = %s and next_run_at is not null returning next_run_at",
        [minutes_ago, task_id],
    ).fetchone()
    assert row is not None, "the task is not placed"
    return row[0]


def fire(app: Connection, task_id: UUID, trigger: str = "clock", count: int = 1) -> list[int]:
    """Write runs of the task's job as pg_cron or the catch-up would, in one transaction. Returns their ids."""
    with app.transaction():
        rows = app.execute(
            "insert into sumaclock.cron_runs (job_id, trigger) select cron_job_id, %s::sumaclock.run_trigger"
            " from sumaclock.ai_tasks, generate_series(1, %s) where id = %s returning id",
            [trigger, count, task_id],
        ).fetchall()
        app.execute("notify cron_runs")
    return [row[0] for row in rows]


def fired(app: Connection, task_id: UUID, trigger: str = "clock") -> Run:
    """Fire once and return the run at its end."""
    (run_id,) = fire(app, task_id, trigger)
    await_ended(app, [run_id])
    return get_run(app, run_id)


def task_effects(app: Connection, task_id: UUID) -> list[tuple[datetime, str]]:
    """The instants and triggers of the task's effects, in order."""
    return app.execute(
        "select scheduled_for, trigger from public.task_effects where task_id = %s order by id", [task_id]
    ).fetchall()


def core_api_keys(app: Connection, task_id: UUID) -> list[str]:
    """The idempotency keys of the core-api jobs that the task's runs queued, in order."""
    rows = app.execute(
        "select idempotency_key from sumaclock.core_api_jobs where starts_with(idempotency_key, %s) order by id",
        [f"ai_task_run:{task_id}:"],
    ).fetchall()
    return [row[0] for row in rows]


def clock_schedule(app_db: AppDatabase, app: Connection, task_id: UUID) -> str | None:
    """The schedule of the task's clock job in pg_cron, or None where it has none."""
    with open_clock(app, app_db.cron_url) as clock:
        job = clock.find(api.get(app, task_id).cron_job_id)
    assert job is None or job.active
    return None if job is None else job.schedule


def is_enabled(app: Connection, task_id: UUID) -> bool:
    row = app.execute(
        "select j.enabled from sumaclock.cron_jobs j join sumaclock.ai_tasks t on t.cron_job_id = j.id where t.id = %s",
        [task_id],
    ).fetchone()
    assert row is not None
    return bool(row[0])
