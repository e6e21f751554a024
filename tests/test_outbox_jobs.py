"""Core-api jobs are written with the caller's transaction, and a delivery run comes for each that is committed."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.migrate import load_migrations
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.outbox import line, queue_delivery, revive_delivery
from sumaclock_dagster.outbox.handler import DELIVERY_JOB, KIND
from sumaclock_dagster.queue.claims import Claim
from tests.conftest import AppDatabase
from tests.outbox import delivery_runs, fill, job, queue
from tests.workers import claim

GOOD = {"idempotency_key": "k", "organization_id": "acme", "user_id": "ada", "path": "/do"}
INSERT = (
    "insert into sumaclock.core_api_jobs (idempotency_key, organization_id, user_id, path, method)"
    " values (%(idempotency_key)s, %(organization_id)s, %(user_id)s, %(path)s, coalesce(%(method)s, 'POST'))"
)
BAD: list[dict[str, Any]] = [
    {"idempotency_key": ""},
    {"idempotency_key": "a b"},
    {"idempotency_key": "a\r\nX-Evil: 1"},
    {"idempotency_key": "ñ"},
    {"idempotency_key": "k" * 256},
    {"organization_id": ""},
    {"user_id": "u" * 201},
    {"method": "GET"},
    {"method": "post"},
    {"path": ""},
    {"path": "do"},
    {"path": "//elsewhere.example/do"},
    {"path": "http://elsewhere.example/do"},
    {"path": "/a#b"},
    {"path": "/a b"},
    {"path": "/a\n"},
    {"path": "/../admin"},
    {"path": "/a/./b"},
    {"path": "/a/%2E%2e/b"},
    {"path": "/a/..?x=1"},
    {"path": "/a\\..\\b"},
    {"path": "/a/..%2fb"},
    {"path": "/" + "p" * 2000},
]
BODIES: list[Any] = [
    float("nan"),
    {"a": float("inf")},
    {"a": object()},
    "nul \0",
    {"nul \0": 1},
    "\ud800",
    "x" * 1_000_001,
]


def test_it_joins_the_callers_transaction(app: Connection) -> None:
    with app.transaction(force_rollback=True):
        assert queue_delivery(app, **GOOD, body={"a": [1, "ü", None]})
    assert delivery_runs(app) == []
    with app.transaction():
        assert queue_delivery(app, **GOOD, body={"a": [1, "ü", None]})
        assert not queue_delivery(app, **GOOD, body={"another": "body"})
        assert delivery_runs(app) == [], "the run must not be claimable before the job is visible"
    found = job(app, "k")
    assert (found["status"], found["attempts"], found["method"], found["body"]) == (
        "pending",
        0,
        "POST",
        {"a": [1, "ü", None]},
    )
    assert [run[1] for run in delivery_runs(app)] == ["pending"]


def test_what_can_not_be_sent_is_refused_before_and_by_the_table(app: Connection) -> None:
    for bad in BAD:
        with pytest.raises(SumaclockError):
            queue_delivery(app, **{**GOOD, **bad})
        with pytest.raises(psycopg.errors.CheckViolation):
            app.execute(INSERT, {"method": None, **GOOD, **bad})


def test_what_can_be_sent_is_taken_by_both(app: Connection) -> None:
    for path in ("/", "/a", "/a/b.c/..d/e..?x=../y&z=%20", "/a/%2e%2e%2e", "/~!$&'()*+,;=:@"):
        assert queue_delivery(app, **{**GOOD, "path": path, "idempotency_key": path})
        app.execute(INSERT, {"method": "DELETE", **GOOD, "path": path, "idempotency_key": f"2{path}"})
        assert job(app, f"2{path}")["path"] == path


def test_a_body_that_can_not_be_stored_harms_no_transaction(app: Connection) -> None:
    with app.transaction():
        for body in BODIES:
            with pytest.raises(SumaclockError, match="body"):
                queue_delivery(app, **GOOD, body=body)
        assert queue_delivery(app, **GOOD, body="a backslash and u0000: \\u0000")
    assert job(app, "k")["body"] == "a backslash and u0000: \\u0000"


def test_one_delivery_run_however_many_jobs(app: Connection) -> None:
    queue(app, *(f"k{number}" for number in range(500)))
    assert len(delivery_runs(app)) == 1
    for number in range(20):
        queue(app, f"single{number}")
    assert len(delivery_runs(app)) == 1
    (found,) = app.execute("select id, kind, enabled from sumaclock.cron_jobs").fetchall()
    assert found == (DELIVERY_JOB, KIND, False)


def test_the_migration_knows_the_job_by_its_id() -> None:
    (text,) = [migration.sql.decode() for migration in load_migrations() if migration.name.endswith("_outbox")]
    assert set(re.findall(r"'([0-9a-f-]{36})'", text)) == {str(DELIVERY_JOB)}
    assert f"'{KIND}'" in text


def test_a_run_in_the_future_is_brought_forward(app: Connection) -> None:
    app.execute("select sumaclock.ask_for_delivery(now() + interval '1 hour')")
    queue(app, "k")
    ((_, status, due_in, _),) = delivery_runs(app)
    assert status == "pending"
    assert due_in < 1


def test_a_pending_run_that_others_rely_on_is_not_claimed_before_their_commit(
    app_db: AppDatabase, app: Connection
) -> None:
    """The lost wake-up: a run that is claimed between somebody's look and their commit would not see their job."""
    queue(app, "first")
    with connect(app_db.app_url, "test other") as other, other.transaction():
        assert queue_delivery(other, **{**GOOD, "idempotency_key": "second"})
        other.execute("set constraints all immediate")
        assert claim(app, 1, 10) == []
    assert len(claim(app, 1, 10)) == 1
    assert len(delivery_runs(app)) == 1


def test_many_at_once_lose_no_wake_up(app_db: AppDatabase, app: Connection) -> None:
    """However claims and commits fall together, no job is left without a run that comes after it."""
    stop = threading.Event()

    def write(number: int) -> None:
        with connect(app_db.app_url, "test writer") as conn:
            for turn in range(60):
                queue(conn, f"{number}:{turn}")

    def serve() -> None:
        with connect(app_db.app_url, "test server") as conn:
            claim = Claim(conn)
            while not stop.is_set() or delivery_runs(conn, "claimed_by is null"):
                if claim(1, None, 10):
                    conn.execute(
                        "update sumaclock.core_api_jobs set status = 'done', finished_at = now()"
                        " where status = 'pending'"
                    )

    server = threading.Thread(target=serve)
    server.start()
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    stop.set()
    server.join(20)
    assert not server.is_alive()
    unserved = app.execute("select id from sumaclock.core_api_jobs where status = 'pending'").fetchall()
    assert unserved == []
    runs = len(delivery_runs(app))
    assert 1 <= runs <= 360


def test_an_attempt_that_was_taken_for_lost_changes_nothing(app: Connection) -> None:
    queue(app, "k")
    sender = uuid4()
    with app.transaction():
        assert line.take(app, sender)
        (first,) = line.claim(app, line.read(app, 4), 1, lease_seconds=0.0)
    with app.transaction():
        (second,) = line.claim(app, line.read(app, 4), 1, lease_seconds=60.0)
    assert (first.id, first.attempt, second.attempt) == (second.id, 1, 2)
    outcome = {"http_status": 200, "error": None, "response": "late"}
    assert not line.record(app, first, status="done", **outcome)
    assert job(app, "k")["status"] == "sending"
    assert line.record(app, second, status="done", **outcome)
    assert not line.record(app, second, status="failed", http_status=500, error="twice", response=None)
    assert job(app, "k")["status"] == "done"


def test_one_sender_at_a_time_until_it_is_not_seen_any_more(app: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = uuid4(), uuid4()
    assert line.take(app, first)
    assert not line.take(app, second)
    assert line.take(app, first)
    monkeypatch.setattr(line, "UNSEEN_SECONDS", 0.0)
    assert line.take(app, second)
    line.release(app, first)
    monkeypatch.setattr(line, "UNSEEN_SECONDS", 10.0)
    assert not line.take(app, first)
    line.release(app, second)
    assert line.take(app, first)


def test_the_line_closes_for_growing_pauses_and_opens_slowly(app: Connection) -> None:
    def state() -> tuple[Any, ...]:
        return app.execute(
            "select failures, pauses, width, extract(epoch from closed_until - now())::float8"
            " from sumaclock.core_api_line"
        ).fetchall()[0]

    def fail(**more: Any) -> None:
        line.note_failure(app, **{"counts": True, "at_once": False, "retry_after_seconds": 0.0, **more})

    def pause_is_over() -> None:
        app.execute("update sumaclock.core_api_line set closed_until = now() - interval '1 second'")

    fill(app, 10)
    assert line.take(app, uuid4())
    for _ in range(5):
        line.note_success(app)
    assert state() == (0, 0, 6, None)
    assert line.read(app, 4).room == 4
    fail()
    fail(counts=False)
    fail()
    assert state() == (2, 0, 6, None)
    fail()
    assert state()[:3] == (3, 1, 1)
    assert 0.4 < state()[3] <= 1.0
    assert line.read(app, 4).room == 0
    # Attempts that were under way at that moment say nothing new.
    for _ in range(8):
        fail()
    assert state()[:3] == (3, 1, 1)
    longest = 1.0
    for pauses in range(2, 9):
        pause_is_over()
        found = line.read(app, 4)
        assert (found.room, found.probing) == (1, True)
        fail(counts=False)
        longest = min(2 * longest, 60.0)
        assert state()[1] == pauses
        assert longest / 2 - 0.5 < state()[3] <= longest
    pause_is_over()
    fail(retry_after_seconds=500.0)
    assert 499 < state()[3] <= 500
    line.note_success(app)
    assert state() == (0, 0, 2, None)
    assert line.read(app, 4).room == 2
    fail(at_once=True, retry_after_seconds=10**6)
    assert 3590 < state()[3] <= 3600


def test_reviving_a_failed_job_brings_a_run(app: Connection) -> None:
    with pytest.raises(SumaclockError, match="No failed core-api job"):
        revive_delivery(app, "k")
    queue(app, "k")
    app.execute("delete from sumaclock.cron_runs")
    app.execute(
        "update sumaclock.core_api_jobs set status = 'failed', last_error = 'E', finished_at = now(), attempts = 1"
    )
    assert delivery_runs(app) == []
    revive_delivery(app, "k")
    assert job(app, "k")["status"] == "pending"
    assert len(delivery_runs(app)) == 1
