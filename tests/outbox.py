"""What the outbox's tests share: core-api jobs, workers that deliver them, and what the database says of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from sumaclock_dagster.db import Connection
from sumaclock_dagster.outbox import delivery, line, queue_delivery
from sumaclock_dagster.outbox.handler import DELIVERY_JOB, delivery_handlers
from sumaclock_dagster.worker import Worker
from tests.conftest import AppDatabase
from tests.waiting import until
from tests.workers import running

TOKEN = "t0ken-of-core-api/that+nobody=may-see"  # noqa: S105
SETTINGS = {
    "core_api_token": SecretStr(TOKEN),
    "core_api_timeout_seconds": 0.7,
    "core_api_backoff_max_seconds": 1.0,
    "core_api_concurrency": 4,
}


def hurry(monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """Shorten what would make tests wait. Without monkeypatch: for good, in a process of its own."""
    for module, values in (
        (line, {"UNSEEN_SECONDS": 1.5, "FIRST_PAUSE_SECONDS": 0.2, "LONGEST_PAUSE_SECONDS": 0.8}),
        (delivery, {"BACKOFF_FIRST_SECONDS": 0.2, "LEASE_SLACK_SECONDS": 0.5, "TAKE_OVER_SECONDS": 2.0}),
    ):
        for name, value in values.items():
            if monkeypatch:
                monkeypatch.setattr(module, name, value)
            else:
                setattr(module, name, value)


def queue(conn: Connection, *keys: str, path: str = "/do", body: Any = None) -> None:
    """All in one transaction."""
    with conn.transaction():
        for key in keys:
            assert queue_delivery(
                conn, idempotency_key=key, organization_id="acme", user_id="ada", path=path, body=body or {"key": key}
            )


def fill(conn: Connection, count: int, prefix: str = "k") -> list[str]:
    keys = [f"{prefix}{number}" for number in range(count)]
    conn.execute(
        "insert into sumaclock.core_api_jobs (idempotency_key, organization_id, user_id, path, body)"
        " select key, 'acme', 'ada', '/do', '{}' from unnest(%s::text[]) with ordinality as k (key, n) order by n",
        [keys],
    )
    return keys


def job(conn: Connection, key: str) -> dict[str, Any]:
    cursor = conn.execute("select * from sumaclock.core_api_jobs where idempotency_key = %s", [key])
    assert cursor.description is not None
    names = [column.name for column in cursor.description]
    return dict(zip(names, cursor.fetchall()[0], strict=True))


def by_status(conn: Connection) -> dict[str, int]:
    return dict(conn.execute("select status::text, count(*) from sumaclock.core_api_jobs group by 1").fetchall())


def await_all_ended(conn: Connection, timeout_seconds: float = 20) -> None:
    until(lambda: not {"pending", "sending"} & set(by_status(conn)), timeout_seconds, "the end of all core-api jobs")


def delivery_runs(conn: Connection, where: str = "true") -> list[tuple[Any, ...]]:
    return conn.execute(
        "select id, status::text, extract(epoch from due_at - now())::float8, error from sumaclock.cron_runs"
        f" where job_id = %s and {where} order by id",
        [DELIVERY_JOB],
    ).fetchall()


@contextmanager
def delivering(app_db: AppDatabase, url: str | None, **settings: Any) -> Iterator[Worker]:
    """A worker in this process that delivers to `url`."""
    values = {**SETTINGS, "core_api_url": url, **settings}
    handlers = delivery_handlers(app_db.settings.model_copy(update=values))
    with running(app_db, handlers, **values) as worker:
        yield worker
