"""The asset clock_health and its checks: what they see of a real queue and a real pg_cron, and what they advise."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
from pydantic import SecretStr

from sumaclock_dagster.calendar import zone_data_version
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.definitions import build
from sumaclock_dagster.defs.health_checks import HEALTH_CHECKS
from sumaclock_dagster.reports.clock_health import clock_life, feel_pulse, firings_by_outcome, lateness_by_hour
from sumaclock_dagster.reports.health_pictures import draw_firings, draw_lateness
from sumaclock_dagster.settings import Settings
from tests.conftest import AppDatabase
from tests.reconcile import cron_as_superuser, insert_jobs, insert_tasks
from tests.test_reports import add_job, add_run

ALL = {
    "no_run_pending_long",
    "no_task_late",
    "migrations_current",
    "no_long_transaction",
    "clock_alive",
    "clock_faults",
}


def materialise(app_db: AppDatabase) -> tuple[dict[str, Any], dict[str, dg.AssetCheckEvaluation]]:
    """The metadata of clock_health, and its checks by name."""
    job = build(app_db.settings).resolve_job_def("report_health")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance)
    assert result.success
    events = result.asset_materializations_for_node("clock_health")
    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
    return {name: value.value for name, value in events[0].metadata.items()}, checks


def fired(app: Connection, job: Any, ago: str, late_seconds: float, *, attempts: int = 1) -> None:
    app.execute(
        "insert into sumaclock.cron_runs (job_id, status, attempts, claimed_by, scheduled_at, started_at, finished_at)"
        " select %(job)s, 'done', %(attempts)s, 1, t, t + %(late)s * interval '1 second', t + interval '1 hour'"
        " from (select now() - %(ago)s::interval as t) as t",
        {"job": job, "attempts": attempts, "late": late_seconds, "ago": ago},
    )


def test_a_healthy_clock_passes_every_check_and_is_shown_with_pictures(app_db: AppDatabase, app: Connection) -> None:
    told, checks = materialise(app_db)
    assert set(checks) == ALL
    assert [name for name, check in checks.items() if not check.passed] == []
    assert "Nothing is scheduled" in str(checks["clock_alive"].description)
    assert (told["last firing"], told["pending runs"], told["live workers"]) == ("none", 0, 0)
    assert told["failures of pg_cron in 24 h"] == 0
    for name in ("lateness by hour", "firings by outcome"):
        assert "](data:image/png;base64,iVBOR" in told[name]
    assert len(told["lateness"].records) == 25


def test_what_is_wrong_fails_its_check_with_what_to_do(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    job = add_job(app, "demo")
    insert_tasks(superuser, 2, "now() - interval '10 minutes'", zone_data_version())
    app.execute(
        "insert into sumaclock.cron_runs (job_id, due_at, trigger)"
        " values (%s, now() - interval '90 seconds', 'manual')",
        [job],
    )
    superuser.execute("delete from sumaclock.migrations where number = (select max(number) from sumaclock.migrations)")
    told, checks = materialise(app_db)
    failed = {name: str(check.description) for name, check in checks.items() if not check.passed}
    assert "pending_runs" in failed["no_run_pending_long"]
    assert "2 tasks are late" in failed["no_task_late"]
    assert "heartbeat" in failed["no_task_late"]
    assert "sumaclock migrate" in failed["migrations_current"]
    assert {check.severity for check in checks.values()} == {dg.AssetCheckSeverity.WARN}
    assert not any(spec.blocking for spec in HEALTH_CHECKS)
    assert (told["pending runs"], told["late tasks"]) == (1, 2)
    assert told["oldest pending run (s)"] >= 90


def test_an_edited_migration_and_a_long_transaction_are_told(
    app_db: AppDatabase, app: Connection, superuser: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sumaclock_dagster.reports.clock_health.OLD_TRANSACTION_SECONDS", 0.0)
    superuser.execute("update sumaclock.migrations set checksum = 'x' where number = 1")
    with connect(app_db.app_url, "test holder") as holder, holder.transaction():
        holder.execute("select pg_current_xact_id()")
        told, checks = materialise(app_db)
    assert "was edited" in str(checks["migrations_current"].description)
    assert "idle_in_transaction_session_timeout" in str(checks["no_long_transaction"].description)
    assert "sumaclock_app" in told["oldest transaction of"]


def test_the_clock_is_judged_by_the_schedules_of_enabled_jobs(app: Connection, app_db: AppDatabase) -> None:
    """A firing is expected from the first minute on at which a job that existed should have fired."""
    job = insert_jobs(app, 1, "* * * * *")[0]

    def look() -> tuple[bool, bool]:
        life = clock_life(app, feel_pulse(app, 30), 30)
        assert life.launcher
        return life.expected is not None, life.is_alive

    assert look() == (False, True), "made just now"
    app.execute("update sumaclock.cron_jobs set updated_at = now() - interval '1 hour'")
    started = app.execute("select pg_postmaster_start_time() < now() - interval '5 minutes'").fetchone()
    if started == (True,):
        assert look() == (True, False)
        fired(app, job, "1 minute", 1)
        assert look() == (True, True)
    app.execute("update sumaclock.cron_jobs set enabled = false")
    assert look() == (False, True)


def test_a_server_that_was_down_could_not_fire(app: Connection, superuser: Connection) -> None:
    insert_tasks(superuser, 1, "pg_postmaster_start_time() - interval '2 minutes'", zone_data_version())
    pulse = feel_pulse(app, 30)
    assert clock_life(app, pulse, 30).expected is None


def test_the_check_of_faults_is_renewed_when_one_comes_or_goes_also_without_a_database(app_db: AppDatabase) -> None:
    """Looked at twice a minute: with a minute's grace for what is due, every fault is told within two."""
    cursor: str | None = None

    def launches(settings: Settings) -> list[str | None]:
        nonlocal cursor
        definitions = build(settings)
        sensor = definitions.get_repository_def().get_sensor_def("faults_changed")
        assert sensor.minimum_interval_seconds == 30
        with dg.DagsterInstance.ephemeral() as instance:
            context = dg.build_sensor_context(
                instance=instance, definitions=definitions, cursor=cursor, resources=definitions.resources
            )
            data = sensor.evaluate_tick(context)
        cursor = data.cursor
        return [request.job_name or sensor.job_name for request in data.run_requests or []]

    away = app_db.settings.model_copy(
        update={"database_url": SecretStr("postgresql://sumaclock_app@127.0.0.1:1/sumaclock")}
    )
    assert launches(app_db.settings) == ["check_clock"]
    assert launches(app_db.settings) == []
    assert (launches(away), launches(away)) == (["check_clock"], [])
    assert cursor == "unreachable"
    assert (launches(app_db.settings), launches(app_db.settings)) == (["check_clock"], [])


def test_lateness_leaves_retries_out_and_counts_by_hour(app: Connection) -> None:
    job = add_job(app, "demo")
    for seconds in (1.0, 2.0, 3.0):
        fired(app, job, "0", seconds)
    fired(app, job, "0", 900, attempts=2)
    fired(app, job, "30 hours", 7)
    table = lateness_by_hour(app)
    newest = table.iloc[-1]
    assert len(table) == 25
    assert (newest["firings"], newest["p50"]) == (3, 2.0)
    assert 2.5 < newest["p95"] < newest["p99"] < 3.0
    assert table.iloc[0]["firings"] == 0
    assert table["p50"].isna().sum() == 24


def test_firings_are_counted_by_outcome_and_drawn(app: Connection) -> None:
    job = add_job(app, "demo")
    add_run(app, job, "done", "1 minute")
    add_run(app, job, "failed", "2 days", "E")
    add_run(app, job, "skipped", "2 days", "paused")
    add_run(app, job, "done", "8 days")
    app.execute("insert into sumaclock.cron_runs (job_id, trigger) values (%s, 'manual'), (%s, 'clock')", [job, job])
    table = firings_by_outcome(app)
    assert dict(table.sum()) == {"done": 1, "failed": 1, "skipped": 1, "unfinished": 1}
    assert len(table) == 29
    assert {gap for gap in table.index.to_series().diff().dropna()} == {timedelta(hours=6)}
    for picture in (draw_firings(table), draw_lateness(lateness_by_hour(app))):
        assert picture.startswith(b"\x89PNG")
        assert int.from_bytes(picture[16:20]) == 900


def test_pg_crons_own_failures_are_told_also_those_without_a_time(app_db: AppDatabase, app: Connection) -> None:
    with cron_as_superuser(app_db) as cron:
        cron.execute(
            "insert into cron.job_run_details (jobid, runid, database, username, command, status, return_message,"
            " start_time, end_time) select 1, nextval('cron.runid_seq'), %s, 'sumaclock_app', '', 'failed', m, t, t"
            " from (values ('old', now() - interval '2 days'), ('connection failed', null), ('connection failed',"
            " null), (E'ERROR: no\\nDETAIL: x', now())) as v (m, t)",
            [app_db.name],
        )
        told, _ = materialise(app_db)
        cron.execute("delete from cron.job_run_details where database = %s", [app_db.name])
    assert told["failures of pg_cron in 24 h"] == 3
    rows = [record.data for record in told["failures of pg_cron"].records]
    assert [(row["message"], row["firings"]) for row in rows] == [("connection failed", 2), ("ERROR: no", 1)]


def test_a_clock_out_of_reach_does_not_stop_the_report(app_db: AppDatabase, app: Connection) -> None:
    settings = app_db.settings.model_copy(update={"cron_database_url": None})
    away = type(settings)(
        home=settings.home,
        database_url=app_db.app_url,
        cron_database_url="postgresql://sumaclock_app@127.0.0.1:1/postgres",
    )
    result = build(away).resolve_job_def("report_health").execute_in_process()
    told = result.asset_materializations_for_node("clock_health")[0].metadata
    assert str(told["failures of pg_cron"].value).startswith("unknown: The cron database can't be reached")


def test_the_report_is_renewed_when_a_check_begins_or_ceases_to_fail(app_db: AppDatabase, app: Connection) -> None:
    definitions = build(app_db.settings)
    cursor: str | None = None

    def launches() -> bool:
        nonlocal cursor
        with dg.DagsterInstance.ephemeral() as instance:
            context = dg.build_sensor_context(
                instance=instance, definitions=definitions, cursor=cursor, resources=definitions.resources
            )
            data = definitions.get_repository_def().get_sensor_def("health_changed").evaluate_tick(context)
        cursor = data.cursor
        return bool(data.run_requests)

    job = add_job(app, "demo")
    assert (launches(), launches()) == (True, False)
    app.execute("insert into sumaclock.cron_runs (job_id, due_at) values (%s, now() - interval '90 seconds')", [job])
    assert (launches(), launches()) == (True, False)
    assert json.loads(cursor or "")["failing"] == ["no_run_pending_long"]
    app.execute("update sumaclock.cron_runs set due_at = now()")
    assert (launches(), launches()) == (True, False)
    cursor = json.dumps({**json.loads(cursor or ""), "at": 0, "last": "before"})
    assert (launches(), launches()) == (True, False), "six hours later"


def test_drift_that_is_not_on_its_way_fails_its_check(app_db: AppDatabase, app: Connection) -> None:
    def check(name: str) -> dg.AssetCheckEvaluation:
        with dg.DagsterInstance.ephemeral() as instance:
            result = (
                build(app_db.settings)
                .resolve_job_def(name)
                .execute_in_process(instance=instance, asset_selection=[dg.AssetKey("schedule_drift")])
            )
        (evaluation,) = result.get_asset_check_evaluations()
        return evaluation

    insert_jobs(app, 2)
    assert check("sync").passed, "made just now"
    app.execute("update sumaclock.cron_jobs set updated_at = now() - interval '1 hour'")
    drifted = check("sync")
    assert (drifted.passed, drifted.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "2 differences: 2 missing." in str(drifted.description)
    assert "`sumaclock drift --fix`" in str(drifted.description)
