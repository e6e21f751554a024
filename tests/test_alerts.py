"""The sensor alerts: what it posts to a real HTTP server, once, and what it does when that server fails."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import dagster as dg
import pytest
from pydantic import SecretStr, ValidationError

from sumaclock_dagster.calendar import zone_data_version
from sumaclock_dagster.db import Connection
from sumaclock_dagster.definitions import build
from sumaclock_dagster.defs import alerts as sensor_module
from sumaclock_dagster.reports import alerts as report
from sumaclock_dagster.settings import Settings
from tests.conftest import AppDatabase, TestCluster
from tests.dagster_storage import dagster_home, dagster_instance
from tests.reconcile import insert_tasks
from tests.test_reports import add_job, add_run

KEPT_QUIET = "T0000/hunter2"


class Webhook:
    """A server that answers with `status` and keeps what it took."""

    def __init__(self) -> None:
        self.status = 200
        self.asked = 0
        self.texts: list[str] = []
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                webhook.asked += 1
                if webhook.status == 200:
                    assert list(body) == ["text"]
                    webhook.texts.append(body["text"])
                self.send_response(webhook.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/services/{KEPT_QUIET}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    hook = Webhook()
    yield hook
    hook.server.shutdown()
    hook.server.server_close()


@pytest.fixture(scope="module")
def instance(cluster: TestCluster) -> Iterator[dg.DagsterInstance]:
    with dagster_home(cluster, f"d_{uuid.uuid4().hex[:10]}") as place, dagster_instance(*place) as instance:
        yield instance


class Ticks:
    """The sensor's evaluations, one after the other, with the cursor that the daemon would keep."""

    def __init__(self, settings: Settings, instance: dg.DagsterInstance) -> None:
        self.definitions = build(settings)
        self.instance = instance
        self.cursor: str | None = None

    def __call__(self) -> str:
        context = dg.build_sensor_context(
            instance=self.instance,
            definitions=self.definitions,
            cursor=self.cursor,
            resources=self.definitions.resources,
        )
        data = self.definitions.get_repository_def().get_sensor_def("alerts").evaluate_tick(context)
        self.cursor = data.cursor
        assert not data.run_requests
        return str(data.skip_message)


@pytest.fixture
def tick(app_db: AppDatabase, instance: dg.DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> Ticks:
    """Switched on, without the pause between messages, on a Dagster that knows of no checks yet."""
    monkeypatch.setattr(sensor_module, "PAUSE_SECONDS", 0.0)
    instance.wipe()
    return Ticks(app_db.settings.model_copy(update={"alert_webhook": SecretStr(webhook.url)}), instance)


def test_it_is_off_without_the_variable(app_db: AppDatabase, instance: dg.DagsterInstance) -> None:
    assert "SUMACLOCK_ALERT_WEBHOOK" in Ticks(app_db.settings, instance)()


def test_new_failures_are_posted_grouped_and_once(
    app: Connection, superuser: Connection, tick: Ticks, webhook: Webhook
) -> None:
    job = add_job(app, "invoice")
    add_run(app, job, "failed", "1 minute", "of before")
    assert tick() == "Nothing new."
    for _ in range(3):
        add_run(app, job, "failed", "0", "ValueError: no <!channel> & such\nTraceback: 40 lines")
    last = add_run(app, job, "failed", "0", "KeyError: 'x'")
    add_run(app, job, "done", "0")
    assert tick() == "Posted 4 failed runs and 0 failed checks."
    (text,) = webhook.texts
    lines = text.split("\n")
    assert lines[0] == "sumaclock: 4 runs failed"
    assert lines[1].startswith("• 3 × run of kind invoice (acme; ")
    assert lines[1].endswith("): ValueError: no &lt;!channel&gt; &amp; such")
    assert lines[2] == f"• 1 × run of kind invoice (acme; {last}): KeyError: 'x'"
    assert (tick(), tick(), len(webhook.texts)) == ("Nothing new.", "Nothing new.", 1)
    app.execute("update sumaclock.cron_runs set finished_at = clock_timestamp() where id = %s", [last])
    assert tick() == "Posted 1 failed runs and 0 failed checks.", "tried again, it failed again"


def test_a_failed_task_run_is_told_once_with_its_run(
    app: Connection, superuser: Connection, tick: Ticks, webhook: Webhook
) -> None:
    insert_tasks(superuser, 1, "now() + interval '1 hour'", zone_data_version())
    tick()
    row = app.execute("select cron_job_id, id from sumaclock.ai_tasks").fetchall()[0]
    run = add_run(app, row[0], "failed", "0", "E: the task's")
    superuser.execute(
        "insert into sumaclock.ai_task_runs (task_id, scheduled_for, trigger, status, error, cron_run_id,"
        " idempotency_key, started_at, finished_at) values (%s, now(), 'clock', 'failed', 'E: the task''s', %s, 'k',"
        " now(), now())",
        [row[1], run],
    )
    tick()
    assert webhook.texts[0].startswith("sumaclock: 1 task run failed\n• 1 × task run of kind effect")


@pytest.mark.parametrize("status", [500, 404, 302])
def test_a_failing_webhook_loses_nothing_and_its_url_is_not_shown(
    app: Connection, tick: Ticks, webhook: Webhook, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    job = add_job(app, "mail")
    tick()
    webhook.status = status
    add_run(app, job, "failed", "0", "first")
    with caplog.at_level(logging.DEBUG):
        said = [tick(), tick()]
    add_run(app, job, "failed", "0", "second")
    webhook.status = 200
    assert tick() == "Posted 2 failed runs and 0 failed checks."
    assert f"status {status}" in said[0]
    assert (webhook.asked, len(webhook.texts)) == (3, 1)
    assert KEPT_QUIET not in "".join((*said, caplog.text, tick.cursor or ""))


def test_a_webhook_that_is_away_loses_nothing(
    app: Connection, app_db: AppDatabase, tick: Ticks, webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    tick()
    add_run(app, add_job(app, "mail"), "failed", "0", "E")
    away = Ticks(
        app_db.settings.model_copy(update={"alert_webhook": SecretStr(f"http://127.0.0.1:1/{KEPT_QUIET}")}),
        tick.instance,
    )
    away.cursor = tick.cursor
    with caplog.at_level(logging.DEBUG):
        said = away()
    assert "no answer (ConnectError)" in said
    assert KEPT_QUIET not in said + caplog.text
    tick.cursor = away.cursor
    assert tick() == "Posted 1 failed runs and 0 failed checks."


def test_at_most_one_message_a_minute(
    app: Connection, tick: Ticks, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = add_job(app, "mail")
    tick()
    monkeypatch.setattr(sensor_module, "PAUSE_SECONDS", 60.0)
    add_run(app, job, "failed", "0", "first")
    assert tick() == "Posted 1 failed runs and 0 failed checks."
    add_run(app, job, "failed", "0", "second")
    assert tick() == "Posted within the last minute."
    values = json.loads(tick.cursor or "")
    tick.cursor = json.dumps({**values, "posted_at": values["posted_at"] - 60})
    assert tick() == "Posted 1 failed runs and 0 failed checks."
    assert "second" in webhook.texts[1]
    assert "first" not in webhook.texts[1]


def test_a_check_is_told_when_it_begins_to_fail(app: Connection, tick: Ticks, webhook: Webhook) -> None:
    def evaluate(text: str | None) -> None:
        tick.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey("clock_health"),
                check_name="clock_alive",
                passed=text is None,
                metadata={},
                description=text,
            )
        )

    evaluate(None)
    assert tick() == "Nothing new."
    evaluate("The launcher is gone.")
    assert tick() == "Posted 0 failed runs and 1 failed checks."
    evaluate("The launcher is still gone.")
    assert tick() == "Nothing new."
    evaluate(None)
    assert tick() == "Nothing new."
    evaluate("Gone again.")
    assert tick() == "Posted 0 failed runs and 1 failed checks."
    assert webhook.texts[0] == "sumaclock: 1 check failed\n• check clock_health:clock_alive: The launcher is gone."
    assert "Gone again." in webhook.texts[1]


def test_of_very_many_none_is_told_twice_or_lost(
    app: Connection, tick: Ticks, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a page ends among failures of one moment, and the cursor stays small."""
    monkeypatch.setattr(report, "LISTED", 40)
    monkeypatch.setattr(report, "KEPT", 50)
    monkeypatch.setattr(report, "IDS_SHOWN", 1000)
    job = add_job(app, "mail")
    tick()
    with app.transaction():
        app.execute(
            "insert into sumaclock.cron_runs (job_id, status, attempts, claimed_by, error, finished_at)"
            " select %s, 'failed', 1, 1, 'E', clock_timestamp() + (n / 30) * interval '1 ms'"
            " from generate_series(1, 300) as n",
            [job],
        )
    while tick() != "Nothing new.":
        pass
    told = [part for text in webhook.texts for part in text.partition("; ")[2].partition(")")[0].split(", ")]
    assert (len(told), len(set(told))) == (300, 300)
    assert len(json.loads(tick.cursor or "")["keys"]) <= 80


def test_a_webhook_that_is_no_address_is_refused_without_being_shown() -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(alert_webhook=SecretStr("hooks.example/hunter2"))
    assert "hunter2" not in str(refused.value)
    assert Settings(alert_webhook=SecretStr(" ")).alert_webhook is None
