"""The system job prune, and system jobs as people see them: in Dagster and in the CLI."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from sumaclock_dagster.cli.main import main
from sumaclock_dagster.db import Connection
from sumaclock_dagster.definitions import build
from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.own_system_jobs import PRUNE, own_system_jobs
from sumaclock_dagster.prune import prune_system_job_runs
from tests.conftest import AppDatabase
from tests.waiting import until
from tests.workers import add_job, running


def add_period(app: Connection, name: str, began: str, ended: str | None, error: str | None = None) -> None:
    """began, ended: how long ago."""
    app.execute(
        "insert into sumaclock.system_job_runs (name, period, worker_id, started_at, finished_at, error)"
        " values (%(name)s, now() - %(began)s::interval, 1, now() - %(began)s::interval, now() - %(ended)s::interval,"
        " %(error)s)",
        {"name": name, "began": began, "ended": ended, "error": error},
    )


def some_handlers() -> Handlers:
    handlers = Handlers()
    handlers.system_job("purge_files", every_seconds=3600)(lambda run: None)
    handlers.system_job("index_messages", every_seconds=5)(lambda run: None)
    return handlers


def with_some(app_db: AppDatabase) -> dg.Definitions:
    return build(app_db.settings.model_copy(update={"handlers": "tests.test_system_jobs_seen:some_handlers"}))


def result_of_prune(app: Connection) -> Any:
    row = app.execute(
        "select result, error from sumaclock.system_job_runs where name = 'prune' and finished_at is not null"
    ).fetchone()
    return row


# ---- prune


def test_rule_14_a_worker_prunes_once_a_day(app_db: AppDatabase, app: Connection) -> None:
    job = add_job(app, "demo")
    app.execute(
        "insert into sumaclock.cron_runs (job_id, scheduled_at, status, attempts, claimed_by, finished_at)"
        " select %s, now() - ago, 'done', 1, 1, now() - ago"
        " from unnest(array['31 days', '31 days', '1 day']::interval[]) as ago",
        [job],
    )
    for began in ("32 days", "31 days", "1 day"):
        add_period(app, "often", began, began)
    add_period(app, "gone", "40 days", "40 days")
    with running(app_db, own_system_jobs(app_db.settings)):
        result, error = until(lambda: result_of_prune(app), 30, "the system job prune to end")
    assert error is None
    assert {name: deleted for name, deleted in result.items() if deleted} == {"runs": 2, "system_job_runs": 2}
    assert app.execute("select count(*) from sumaclock.cron_runs").fetchone() == (1,)
    kept = app.execute("select name from sumaclock.system_job_runs order by name").fetchall()
    assert kept == [("gone",), ("often",), ("prune",)], "the newest period of each stays"


def test_periods_are_pruned_in_batches(app: Connection) -> None:
    for days in range(31, 38):
        add_period(app, "often", f"{days} days", f"{days} days")
    assert list(prune_system_job_runs(app, 30, batch=4)) == [4, 2]


def test_the_daily_schedule_launches_only_where_no_worker_has_pruned(app_db: AppDatabase, app: Connection) -> None:
    def launches() -> bool:
        context = dg.build_schedule_context(instance=instance, resources=definitions.resources)
        return bool(definitions.get_repository_def().get_schedule_def("prune").evaluate_tick(context).run_requests)

    with dg.instance_for_test() as instance:
        definitions = build(app_db.settings)
        assert launches()
        add_period(app, PRUNE, "3 hours", "2 hours", "no disk")
        assert launches()
        app.execute("update sumaclock.system_job_runs set error = null")
        assert not launches()
        app.execute("update sumaclock.system_job_runs set finished_at = now() - interval '3 days'")
        assert launches()


# ---- in Dagster


def materialise(definitions: dg.Definitions) -> tuple[dict[str, Any], dict[str, dg.AssetCheckEvaluation]]:
    with dg.instance_for_test() as instance:
        result = definitions.resolve_job_def("report_system_jobs").execute_in_process(instance=instance)
    (made,) = result.asset_materializations_for_node("system_jobs")
    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
    return {name: value.value for name, value in made.metadata.items()}, checks


def test_the_asset_shows_last_run_duration_error_and_next(app_db: AppDatabase, app: Connection) -> None:
    add_period(app, "index_messages", "10 s", "8 s")
    add_period(app, "purge_files", "1 hour", "59 minutes", "OSError: no disk\nTraceback")
    told, checks = materialise(with_some(app_db))
    table = {record.data["name"]: record.data for record in told["list"].records}
    assert {"index_messages", "prune", "purge_files"} <= set(table)
    assert table["purge_files"]["error"] == "OSError: no disk"
    assert (table["purge_files"]["duration (s)"], table["purge_files"]["state"]) == (60.0, "failed")
    assert (table["index_messages"]["duration (s)"], table["index_messages"]["state"]) == (2.0, "done")
    assert (table["prune"]["state"], table["prune"]["last run (UTC)"]) == ("not yet", "")
    assert all(row["next (UTC)"] for row in table.values())
    assert {name: check.passed for name, check in checks.items()} == {
        "no_system_job_failed": False,
        "no_system_job_overdue": True,
    }
    assert not any(check.blocking for check in checks.values())
    assert "The last run failed of: purge_files" in str(checks["no_system_job_failed"].description)


def test_a_job_that_no_worker_begins_is_overdue(app_db: AppDatabase, app: Connection) -> None:
    add_period(app, "index_messages", "10 minutes", "9 minutes")
    with running(app_db, Handlers()):
        app.execute("update sumaclock.workers set started_at = started_at - interval '10 minutes'")
        told, checks = materialise(with_some(app_db))
    assert told["overdue"] == told["system jobs"] >= 3
    assert not checks["no_system_job_overdue"].passed
    assert "Overdue: index_messages, prune, purge_files" in str(checks["no_system_job_overdue"].description)


def test_the_report_is_renewed_when_something_begins_or_ceases_to_fail(app_db: AppDatabase, app: Connection) -> None:
    cursor: str | None = None

    def launches() -> bool:
        nonlocal cursor
        context = dg.build_sensor_context(
            instance=instance, definitions=definitions, cursor=cursor, resources=definitions.resources
        )
        tick = definitions.get_repository_def().get_sensor_def("system_jobs_changed").evaluate_tick(context)
        cursor = tick.cursor
        return bool(tick.run_requests)

    with dg.instance_for_test() as instance:
        definitions = with_some(app_db)
        assert not launches(), "nothing has been executed"
        add_period(app, "purge_files", "1 hour", "59 minutes", "no disk")
        assert [launches(), launches()] == [True, False]
        app.execute("update sumaclock.system_job_runs set error = null")
        assert [launches(), launches()] == [True, False]
        add_period(app, "index_messages", "5 s", "4 s")
        assert not launches(), "it is renewed every six hours"


# ---- in the CLI


def test_system_list(app_db: AppDatabase, app: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", app_db.app_url)
    monkeypatch.setenv("SUMACLOCK_HANDLERS", "tests.test_system_jobs_seen:some_handlers")
    add_period(app, "purge_files", "1 hour", "59 minutes", "OSError: no disk")

    shown = CliRunner().invoke(main, ["system", "list"])
    assert shown.exit_code == 0, shown.output
    assert max(map(len, shown.output.splitlines())) <= 100
    assert {"index_messages", "prune", "purge_files"} <= {line.split()[0] for line in shown.output.splitlines()[1:]}

    listed = json.loads(CliRunner().invoke(main, ["system", "list", "--json"]).stdout)
    (purge,) = (job for job in listed if job["name"] == "purge_files")
    assert (purge["state"], purge["error"]) == ("failed", "OSError: no disk")
    assert (purge["duration_seconds"], purge["every_seconds"], purge["attempts"]) == (60.0, 3600, 1)
