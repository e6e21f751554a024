"""Metrics for Prometheus: a real exporter, scraped over HTTP, on a real queue."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sumaclock_dagster.clock.faults import FaultKind
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.db import Connection
from sumaclock_dagster.queue.workers import request_worker
from sumaclock_dagster.reconcile.drift import DriftKind
from sumaclock_dagster.reports import metrics as metrics_module
from sumaclock_dagster.reports.metrics import make_registry
from tests.conftest import AppDatabase
from tests.reconcile import cron_as_superuser, insert_jobs
from tests.test_reports import add_job, add_run

Samples = dict[tuple[str, ...], float]


def samples(text: str) -> Samples:
    """By name and label values, in the order of the labels' names."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def exporter(app_db: AppDatabase) -> Iterator[str]:
    """The address of `sumaclock metrics` in a process of its own."""
    command = [sys.executable, "-m", "sumaclock_dagster.cli.main", "metrics", "--port", "0"]
    environment = os.environ | {"SUMACLOCK_DATABASE_URL": app_db.app_url, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/metrics", process.stdout.readline())
        assert found
        try:
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(60) == 0
            finally:
                # Else the end of Popen's block would wait for one that does not end.
                process.kill()


def test_a_scrape_tells_what_the_database_holds(app_db: AppDatabase, app: Connection, exporter: str) -> None:
    job = add_job(app, "invoice")
    app.execute("insert into sumaclock.cron_runs (job_id, due_at) values (%s, now() - interval '2 minutes')", [job])
    worker = request_worker(app, "v")
    app.execute(
        "insert into sumaclock.cron_runs (job_id, status, attempts, claimed_by, started_at, heartbeat_at)"
        " values (%s, 'running', 1, %s, now(), now())",
        [job, worker],
    )
    for lateness, duration in ((0.2, 0.02), (3, 2)):
        app.execute(
            "insert into sumaclock.cron_runs"
            " (job_id, status, attempts, claimed_by, scheduled_at, started_at, finished_at)"
            " select %s, 'done', 1, 7, t - %s * interval '1 second', t, t + %s * interval '1 second'"
            " from (select now() - interval '1 minute' as t) as t",
            [job, lateness, duration],
        )
    app.execute(
        "insert into sumaclock.core_api_jobs (organization_id, user_id, idempotency_key, path)"
        " values ('acme', 'ana', 'k', '/x')"
    )

    answer = httpx.get(exporter)
    told = samples(answer.text)

    assert answer.headers["content-type"].startswith("text/plain")
    assert told["sumaclock_up",] == 1
    assert (told["sumaclock_runs", "invoice", "pending"], told["sumaclock_runs", "invoice", "running"]) == (1, 1)
    assert told["sumaclock_backlog_oldest_seconds",] >= 120
    assert told["sumaclock_workers_live",] == 0
    assert told["sumaclock_lateness_seconds_bucket", "invoice", "0.1"] == 0
    assert told["sumaclock_lateness_seconds_bucket", "invoice", "0.25"] == 1
    assert told["sumaclock_lateness_seconds_bucket", "invoice", "+Inf"] == 2
    assert told["sumaclock_lateness_seconds_sum", "invoice"] == pytest.approx(3.2)
    assert told["sumaclock_duration_seconds_bucket", "invoice", "0.025"] == 1
    assert told["sumaclock_duration_seconds_count", "invoice"] == 2
    assert told["sumaclock_outbox_jobs", "pending"] == 1
    assert (told["sumaclock_tasks", "active"], told["sumaclock_tasks_late",]) == (0, 0)
    assert told["sumaclock_last_firing_timestamp_seconds",] > 1e9


def test_ended_runs_are_counted_on_from_scrape_to_scrape(
    app_db: AppDatabase, app: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_module, "SETTLED", metrics_module.timedelta(0))
    registry = make_registry(app_db.app_url, app_db.cron_url, 30, dict)
    job = add_job(app, "mail")
    add_run(app, job, "done", "1 hour")

    def ended() -> Samples:
        told = samples(generate_latest(registry).decode())
        return {key[1:]: value for key, value in told.items() if key[0] == "sumaclock_runs_ended_total"}

    assert ended() == {}, "what ended before is not counted"
    add_run(app, job, "done", "0")
    add_run(app, job, "failed", "0", "E")
    assert ended() == {("mail", "done"): 1, ("mail", "failed"): 1}
    add_run(app, job, "done", "0")
    assert ended() == {("mail", "done"): 2, ("mail", "failed"): 1}
    app.execute("delete from sumaclock.cron_runs")
    assert ended() == {("mail", "done"): 2, ("mail", "failed"): 1}, "a prune takes nothing back"


def test_a_database_that_is_away_is_up_zero_with_its_fault_and_nothing_else() -> None:
    url = "postgresql://sumaclock_app:hunter2@127.0.0.1:1/sumaclock"
    told = samples(generate_latest(make_registry(url, url, 30, dict)).decode())
    assert {name for name, *_ in told} == {"sumaclock_up", "sumaclock_clock_fault"}
    assert told["sumaclock_up",] == 0
    assert [key[1] for key, value in told.items() if value] == ["unreachable"]


def test_faults_and_drift_are_told_by_name(app_db: AppDatabase, app: Connection, exporter: str) -> None:
    job = insert_jobs(app, 1)[0]
    with Clock(app_db.cron_url, app_db.name) as clock, cron_as_superuser(app_db) as cron:
        clock.schedule(job, "0 0 1 1 *")
        cron.execute("update cron.job set nodename = 'old-primary' where jobid = %s", [clock.listed()[0].jobid])
        told = samples(httpx.get(exporter).text)
    assert [key[1] for key, value in told.items() if key[0] == "sumaclock_clock_fault" and value] == ["fires_elsewhere"]
    assert len([key for key in told if key[0] == "sumaclock_clock_fault"]) == len(FaultKind)
    drift = {key[1]: value for key, value in told.items() if key[0] == "sumaclock_drift"}
    assert drift == {kind.value: float(kind in (DriftKind.SCHEDULE, DriftKind.PLACE)) for kind in DriftKind}


def test_a_port_in_use_is_told(app_db: AppDatabase, exporter: str) -> None:
    port = exporter.partition("1:")[2].partition("/")[0]
    done = subprocess.run(
        [sys.executable, "-m", "sumaclock_dagster.cli.main", "metrics", "--port", port],
        env=os.environ | {"SUMACLOCK_DATABASE_URL": app_db.app_url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"Cannot listen at 127.0.0.1 port {port}: Address already in use." in done.stderr
