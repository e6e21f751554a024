"""Core-api jobs delivered by a real worker to a real server that fails in every way."""

from __future__ import annotations

import logging
import random
from collections import Counter
from email.utils import formatdate
from time import monotonic, time
from typing import Any

import pytest
from pydantic import ValidationError

from sumaclock_dagster.db import Connection
from sumaclock_dagster.outbox import delivery, revive_delivery
from sumaclock_dagster.own_handlers import own_handlers
from sumaclock_dagster.settings import Settings
from tests.conftest import AppDatabase
from tests.outbox import SETTINGS, TOKEN, await_all_ended, by_status, delivering, delivery_runs, fill, hurry, job, queue
from tests.receiver import Answer, Arrival, receiving
from tests.waiting import until
from tests.workers import running


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


def test_a_job_is_delivered_at_once_and_its_answer_stored(app_db: AppDatabase, app: Connection) -> None:
    with receiving() as receiver, delivering(app_db, receiver.url):
        queue(app, "warm-up")
        await_all_ended(app)
        began = monotonic()
        queue(app, "k", path="/reminders", body={"text": "ñ", "big": 12345678901234567890123})
        until(lambda: receiver.times("k"), 5, "the request", poll_seconds=0.001)
        assert monotonic() - began < 1
        await_all_ended(app)
    found = job(app, "k")
    assert (found["status"], found["attempts"], found["last_status"], found["last_error"]) == ("done", 1, 200, None)
    assert found["response"] == '{"ok":true}'
    assert found["created_at"] <= found["finished_at"]
    assert b"12345678901234567890123" in receiver.arrivals[-1].body
    assert receiver.effects == {"warm-up": 1, "k": 1}


FAILURES: dict[str, Answer] = {
    "500": Answer(500, work=False),
    "502": Answer(502, work=False),
    "503": Answer(503, work=False),
    "408": Answer(408, work=False),
    "425": Answer(425, work=False),
    "429": Answer(429, work=False),
    "500-after-work": Answer(500),
    "reset-before": Answer(how="reset", work=False),
    "reset-after-work": Answer(how="reset"),
    "garbage": Answer(how="garbage"),
    "hang": Answer(how="hang"),
    "drip": Answer(how="drip"),
}
FINAL = {"400": 400, "401": 401, "403": 403, "404": 404, "410": 410, "422": 422, "302": 302, "307": 307}


@pytest.mark.parametrize("honours", [True, False])
def test_every_failure_ends_well_and_every_refusal_ends(app_db: AppDatabase, app: Connection, honours: bool) -> None:
    def behave(arrival: Arrival) -> Answer:
        if arrival.key in FINAL:
            return Answer(FINAL[arrival.key], b"no", headers={"Location": "/elsewhere"}, work=False)
        if arrival.key == "409":
            return Answer(409, work=False)
        return FAILURES[arrival.key] if arrival.nth == 1 else Answer()

    with receiving(behave, honours) as receiver, delivering(app_db, receiver.url):
        queue(app, *FAILURES, *FINAL, "409")
        await_all_ended(app, 30)
    for key in FAILURES:
        found = job(app, key)
        assert (found["status"], found["attempts"], found["last_error"]) == ("done", 2, None), key
        assert receiver.effects[key] == (1 if honours or not FAILURES[key].work else 2), key
    for key, status in FINAL.items():
        found = job(app, key)
        assert (found["status"], found["attempts"], found["last_status"]) == ("failed", 1, status), key
        assert key in found["last_error"]
        assert found["response"] == "no"
        assert receiver.effects[key] == 0
    assert "Redirects are not followed" in job(app, "302")["last_error"]
    assert (job(app, "409")["status"], job(app, "409")["attempts"]) == ("done", 1)


def in_two_seconds(form: str) -> dict[str, str]:
    # A date has no fractions; the receiver's own says what it counts from.
    return {"Retry-After": "2" if form == "seconds" else formatdate(time() + 2, usegmt=True)}


def test_retry_after_is_respected(app_db: AppDatabase, app: Connection) -> None:
    def behave(arrival: Arrival) -> Answer:
        if arrival.nth > 1 or arrival.key == "other":
            return Answer()
        return Answer(429, headers=in_two_seconds(arrival.key), work=False)

    with receiving(behave) as receiver, delivering(app_db, receiver.url):
        queue(app, "seconds", "date", "other")
        until(lambda: job(app, "other")["status"] == "done", 1.5, "the one that nobody asked to wait")
        await_all_ended(app)
        for key in ("seconds", "date"):
            first, second = receiver.times(key)
            assert 1.9 <= second - first < 3.5
    assert receiver.effects == {"seconds": 1, "date": 1, "other": 1}


def test_503_with_retry_after_holds_for_all(app_db: AppDatabase, app: Connection) -> None:
    def behave(arrival: Arrival) -> Answer:
        if len(receiver.arrivals) == 1:
            return Answer(503, headers=in_two_seconds("date"), work=False)
        return Answer()

    with receiving(behave) as receiver, delivering(app_db, receiver.url):
        queue(app, "first")
        until(lambda: receiver.arrivals, 5, "the first request")
        until(lambda: job(app, "first")["status"] == "pending", 5, "its outcome")
        queue(app, *(f"k{number}" for number in range(20)))
        await_all_ended(app)
    began = receiver.arrivals[0].at
    assert min(arrival.at for arrival in receiver.arrivals[1:]) - began >= 1.9
    assert len(receiver.arrivals) == 22


def test_an_outage_loses_nothing_spends_few_attempts_and_ends_without_a_stampede(
    app_db: AppDatabase, app: Connection
) -> None:
    down = True

    def behave(arrival: Arrival) -> Answer:
        return Answer(503, work=False) if down else Answer(takes_seconds=0.01)

    with receiving(behave) as receiver, delivering(app_db, receiver.url, core_api_concurrency=5):
        keys = fill(app, 400)
        until(lambda: len(receiver.arrivals) >= 8, 20, "some attempts")
        during = len(receiver.arrivals)
        tries = Counter(receiver.keys())
        down = False
        back_at = monotonic()
        await_all_ended(app, 60)
        took = monotonic() - back_at
    # Pauses of 0.2, 0.4, 0.8, 0.8 s ...: one attempt each, and never the same job twice while others were not tried.
    assert during < 20
    assert max(tries.values()) == 1
    assert 2 <= receiver.most_at_once <= 5
    assert receiver.effects == dict.fromkeys(keys, 1)
    assert by_status(app) == {"done": 400}
    attempts = app.execute("select sum(attempts) from sumaclock.core_api_jobs").fetchone()
    assert attempts == (len(receiver.arrivals),)
    assert len(receiver.arrivals) <= 400 + during + 5
    # Oldest first, in the order in which they were written, but for the few that had been tried.
    order = [int(key[1:]) for key in receiver.keys()[during + 5 :]]
    late = sum(max(order[:place], default=-1) > number + 10 for place, number in enumerate(order[:300]))
    assert late <= during + 5
    # Slowly at first: the second request came after the first one's answer.
    first, second = [arrival.at for arrival in receiver.arrivals if arrival.at > back_at][:2]
    assert second - first >= 0.01
    assert took < 60


def test_one_job_that_core_api_cannot_take_holds_up_no_other(app_db: AppDatabase, app: Connection) -> None:
    def behave(arrival: Arrival) -> Answer:
        return Answer(500, work=False) if arrival.key.startswith("poison") else Answer()

    with receiving(behave) as receiver, delivering(app_db, receiver.url):
        queue(app, *(f"poison{number}" for number in range(6)))
        until(lambda: len(receiver.arrivals) > 12, 20, "the poison's attempts")
        for number in range(5):
            queue(app, f"good{number}")
            began = monotonic()
            until(lambda: job(app, f"good{number}")["status"] == "done", 5, "a good one's delivery")  # noqa: B023
            assert monotonic() - began < 2.5
    assert by_status(app) == {"done": 5, "pending": 6}


def test_old_and_often_tried_is_given_up_and_can_be_revived(app_db: AppDatabase, app: Connection) -> None:
    broken = True
    with (
        receiving(lambda _: Answer(500 if broken else 200, work=not broken)) as receiver,
        delivering(app_db, receiver.url, core_api_give_up_seconds=0.0, core_api_backoff_max_seconds=0.05),
    ):
        queue(app, "k")
        await_all_ended(app, 30)
        found = job(app, "k")
        assert (found["status"], found["attempts"], found["last_status"]) == ("failed", 10, 500)
        assert found["last_error"].startswith("Given up after 10 attempts in 0.0 days: core-api answered 500")
        broken = False
        revive_delivery(app, "k")
        await_all_ended(app)
    assert (job(app, "k")["status"], job(app, "k")["attempts"]) == ("done", 11)


def test_without_a_url_requests_wait(app_db: AppDatabase, app: Connection) -> None:
    queue(app, "k")
    with delivering(app_db, None):
        until(lambda: delivery_runs(app, "status = 'skipped'"), 10, "the run's end")
        ((_, _, _, error),) = delivery_runs(app, "status = 'skipped'")
        assert error == "Requests wait: SUMACLOCK_CORE_API_URL is not set."
    ((_, _, due_in, _),) = delivery_runs(app, "status = 'pending'")
    assert 250 < due_in <= 300
    app.execute("update sumaclock.cron_runs set due_at = now() where status = 'pending'")
    with receiving() as receiver, delivering(app_db, receiver.url):
        await_all_ended(app)
    assert receiver.keys() == ["k"]


def test_what_a_task_asks_of_core_api_arrives(app_db: AppDatabase, app: Connection) -> None:
    with receiving() as receiver:
        values = {**SETTINGS, "core_api_url": receiver.url}
        handlers = own_handlers(app_db.settings.model_copy(update=values))
        with running(app_db, handlers, **values):
            (task_id,) = app.execute(
                "select sumaclock.create_task('acme', 'ada', 'core_api', 'Call her',"
                """ '{"path": "/reminders", "body": {"call": 7}}', instant => date_trunc('minute', now()))"""
            ).fetchall()[0]
            until(lambda: by_status(app) == {"done": 1}, 15, "the delivery")
    (arrival,) = receiver.arrivals
    assert arrival.key.startswith(f"ai_task_run:{task_id}:20")
    assert (arrival.method, arrival.path, arrival.body) == ("POST", "/reminders", b'{"call": 7}')


def test_nothing_is_left_running_when_all_is_done(app_db: AppDatabase, app: Connection) -> None:
    with receiving() as receiver, delivering(app_db, receiver.url):
        queue(app, *(f"k{number}" for number in range(30)))
        await_all_ended(app)
        until(lambda: not delivery_runs(app, "finished_at is null"), 10, "the end of delivery runs")
    runs = delivery_runs(app)
    assert len(runs) <= 4
    results = app.execute("select sum((result->>'delivered')::int) from sumaclock.cron_runs").fetchone()
    assert results == (30,)
    assert app.execute("select sender, closed_until from sumaclock.core_api_line").fetchone() == (None, None)


def test_the_token_is_nowhere(app_db: AppDatabase, app: Connection, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def behave(arrival: Arrival) -> Answer:
        assert arrival.headers["Authorization"] == f"Bearer {TOKEN}"
        return Answer({"a": 200, "b": 422, "c": 500, "d": 409}[arrival.key], str(arrival.headers).encode())

    with receiving(behave) as receiver, delivering(app_db, receiver.url):
        queue(app, "a", "b", "c", "d")
        until(lambda: job(app, "c")["attempts"] > 1 and job(app, "a")["finished_at"], 10, "the answers")
    rows: list[Any] = []
    for table in ("core_api_jobs", "core_api_line", "cron_runs", "cron_jobs", "workers"):
        rows += app.execute(f"select t::text from sumaclock.{table} t").fetchall()
    assert "[token]" in str(rows)
    assert TOKEN not in str(rows)
    assert TOKEN not in "".join(record.getMessage() for record in caplog.records)
    assert TOKEN not in caplog.text


def test_settings_that_hold_no_secret_and_tell_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in (
        "core-api",
        "ftp://core-api",
        "https://user:pass-word@core-api",
        "https://core-api?key=pass-word",
        "https://",
    ):
        monkeypatch.setenv("SUMACLOCK_CORE_API_URL", url)
        with pytest.raises(ValidationError) as refused:
            Settings()
        assert "pass-word" not in str(refused.value)
    monkeypatch.setenv("SUMACLOCK_CORE_API_URL", "https://core-api:8443/base")
    monkeypatch.setenv("SUMACLOCK_CORE_API_TOKEN", "pass word")
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert "pass word" not in str(refused.value)
    monkeypatch.setenv("SUMACLOCK_CORE_API_TOKEN", "pass-word\n")
    settings = Settings()
    assert settings.core_api_token is not None
    assert settings.core_api_token.get_secret_value() == "pass-word"
    assert "pass-word" not in repr(settings)
    monkeypatch.setenv("SUMACLOCK_CORE_API_URL", "")
    monkeypatch.setenv("SUMACLOCK_CORE_API_TOKEN", "")
    assert (Settings().core_api_url, Settings().core_api_token) == (None, None)


def test_backoff_is_exponential_with_full_jitter_and_never_below_retry_after() -> None:
    settings = Settings().model_copy(update={"core_api_backoff_max_seconds": 3.0})
    sending = delivery.Sending(None, None, settings, None, random.Random(7))  # type: ignore[arg-type]
    for attempt, longest in ((1, 0.2), (2, 0.4), (3, 0.8), (5, 3.0), (10_000, 3.0)):
        delays = [sending._delay(attempt, 0.0) for _ in range(2000)]
        assert 0 <= min(delays) < 0.05 * longest
        assert 0.95 * longest < max(delays) <= longest
    waits = [sending._delay(1, 100.0) for _ in range(100)]
    assert 100 <= min(waits) < max(waits) <= 110
