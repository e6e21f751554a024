"""Watching the queue: the sensor sees at once what is notified, and does not look too often."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.queue import watch as watch_module
from sumaclock_dagster.queue.watch import Look, look, watch
from sumaclock_dagster.queue.workers import end, request_worker
from tests.conftest import AppDatabase
from tests.test_reports import add_job
from tests.waiting import until


def in_background(app_db: AppDatabase, seconds: float) -> Callable[[], tuple[Look, float] | None]:
    """Watch with a connection of its own; what is returned gives the last look and the seconds it took, once ended."""
    found: list[tuple[Look, float]] = []

    def run() -> None:
        with connect(app_db.app_url, "test watch") as conn:
            began = monotonic()
            seen = watch(conn, app_db.settings, "v", seconds)
            found.append((seen, monotonic() - began))

    threading.Thread(target=run, daemon=True).start()
    return lambda: found[0] if found else None


def wait_until_it_listens(superuser: Connection) -> None:
    until(
        lambda: superuser.execute(
            "select 1 from pg_stat_activity where application_name = 'test watch' and datname = current_database()"
            " and state = 'idle' and query <> ''"
        ).fetchone(),
        what="the watch to wait",
    )


def test_the_watch_ends_at_once_when_a_worker_is_wanted(app_db: AppDatabase, app: Connection) -> None:
    began = monotonic()
    seen = watch(app, app_db.settings, "v", 20)
    assert seen.wanted == app_db.settings.min_workers == 1
    assert monotonic() - began < 2


def test_an_ended_worker_is_noticed_at_its_notification(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    worker_id = request_worker(app, "v")
    watched = in_background(app_db, 20)
    wait_until_it_listens(superuser)

    end(app, worker_id)

    seen, seconds = until(watched, 5, "the end of the watch")
    assert seen.wanted == 1
    assert seconds < 3, "long before the next look of its own"


def test_a_storm_of_notifications_is_one_look_a_second(
    app_db: AppDatabase, app: Connection, superuser: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def counted(*arguments: Any, **options: Any) -> Look:
        looks.append(monotonic())
        return look(*arguments, **options)

    monkeypatch.setattr(watch_module, "look", counted)
    request_worker(app, "v")
    watched = in_background(app_db, 3)
    wait_until_it_listens(superuser)

    sent = 0
    while watched() is None:
        app.execute("notify cron_runs")
        sent += 1

    assert sent > 100
    assert 3 <= len(looks) <= 5
    assert min(after - before for before, after in pairwise(looks[:-1])) > 0.95


def test_without_news_it_ends_in_time(app_db: AppDatabase, app: Connection) -> None:
    request_worker(app, "v")
    began = monotonic()
    seen = watch(app, app_db.settings, "v", 1.5)
    assert 1.4 < monotonic() - began < 3
    assert (seen.wanted, seen.state.starting) == (0, 1)


def test_a_backlog_that_comes_meanwhile_is_noticed(app_db: AppDatabase, app: Connection, superuser: Connection) -> None:
    request_worker(app, "v")
    watched = in_background(app_db, 20)
    wait_until_it_listens(superuser)

    with app.transaction():
        app.execute(
            "insert into sumaclock.cron_runs (job_id) select %s from generate_series(1, 1200)", [add_job(app, "demo")]
        )
        app.execute("notify cron_runs")

    seen, seconds = until(watched, 5, "the end of the watch")
    assert seen.wanted == 2, "500 runs a worker, and one is starting"
    assert seconds < 3


def test_without_a_live_worker_silent_runs_are_released_here(app_db: AppDatabase, app: Connection) -> None:
    settings = app_db.settings.model_copy(update={"lease_seconds": 30})
    app.execute(
        # A frozen worker: its session is taken for alive, but neither it nor its run shows a sign of life.
        "with w as (insert into sumaclock.workers (code_version, started_at, heartbeat_at, retires_at)"
        " values ('v', now(), now(), now() + interval '1 hour') returning id)"
        " insert into sumaclock.cron_runs (job_id, status, attempts, claimed_by, started_at, heartbeat_at)"
        " select %s, 'running', 1, id, now() - interval '1 minute', now() - interval '1 minute' from w",
        [add_job(app, "demo")],
    )
    assert look(app, settings, "v").released.pending == 1
