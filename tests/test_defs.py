"""The Dagster definitions one by one, on a real Dagster instance whose storage is PostgreSQL."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest
from pydantic import SecretStr

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.definitions import build
from sumaclock_dagster.defs import sensors
from sumaclock_dagster.defs.own import OWN_ASSETS
from sumaclock_dagster.defs.resources import Sumaclock
from sumaclock_dagster.model import RunStatus, SumaclockError
from sumaclock_dagster.queue.runs import fire, get_run
from sumaclock_dagster.queue.workers import live_workers, request_worker
from sumaclock_dagster.settings import Settings
from tests.conftest import AppDatabase, TestCluster
from tests.dagster_storage import dagster_home, dagster_instance
from tests.test_reports import add_job, add_run
from tests.waiting import until

NO_SERVER = "postgresql://sumaclock_app:hunter2@127.0.0.1:1/sumaclock"


@pytest.fixture(scope="module")
def storage(cluster: TestCluster) -> Iterator[tuple[Path, str, str]]:
    name = f"d_{uuid.uuid4().hex[:10]}"
    with dagster_home(cluster, name) as (folder, url):
        yield folder, url, name


@pytest.fixture(scope="module")
def instance(storage: tuple[Path, str, str]) -> Iterator[dg.DagsterInstance]:
    with dagster_instance(*storage[:2]) as instance:
        yield instance


@pytest.fixture
def definitions(app_db: AppDatabase) -> dg.Definitions:
    return build(app_db.settings)


def tick(definitions: dg.Definitions, instance: dg.DagsterInstance, name: str, cursor: str | None = None):  # type: ignore[no-untyped-def]
    """What the daemon gets from one evaluation of a sensor."""
    context = dg.build_sensor_context(
        instance=instance, definitions=definitions, cursor=cursor, resources=definitions.resources
    )
    return definitions.get_repository_def().get_sensor_def(name).evaluate_tick(context)


def number(metadata: object) -> object:
    assert isinstance(metadata, dg.IntMetadataValue | dg.FloatMetadataValue)
    return metadata.value


# ---- the code location


def test_definitions_load_without_a_database() -> None:
    definitions = build(Settings(database_url=NO_SERVER))
    repository = definitions.get_repository_def()
    assert {"work", "prune", "report_failures"} <= set(repository.job_names)
    assert {sensor.name for sensor in repository.sensor_defs} == {
        "pending_runs",
        "dagster_targets",
        "failures_changed",
        "tasks_changed",
        "health_changed",
        "faults_changed",
        "commands_changed",
        "system_jobs_changed",
        "alerts",
    }
    running = (dg.DefaultSensorStatus.RUNNING, dg.DefaultScheduleStatus.RUNNING)
    assert all(entry.default_status in running for entry in (*repository.sensor_defs, *repository.schedule_defs))


def test_definitions_load_before_any_database_is_known(tmp_path: Path) -> None:
    definitions = build(Settings(home=tmp_path))
    assert definitions.resolve_job_def("work").name == "work"


def test_the_catalog_and_the_lineage_read_as_a_map_of_the_system() -> None:
    graph = build(Settings(database_url=NO_SERVER)).get_repository_def().asset_graph
    for key in OWN_ASSETS:
        node = graph.get(key)
        assert node.owners == ["team:sumaclock"], key
        assert (node.group_name, node.kinds) == ("sumaclock", {"postgres", "table"}), key
        assert len(node.description or "") > 80, key
    from_clock_to_core_api = ["sync_report", "schedule_drift", "cron_runs", "task_runs", "core_api_jobs"]
    for upstream, downstream in pairwise(from_clock_to_core_api):
        assert dg.AssetKey(upstream) in graph.get(dg.AssetKey(downstream)).parent_keys, downstream
    reports = {"run_failures", "task_runs", "upcoming_firings", "clock_health"}
    assert {key.to_user_string() for key in graph.get(dg.AssetKey("cron_runs")).child_keys} >= reports


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("nowhere.at_all:handlers", "cannot import nowhere.at_all"),
        ("json:handlers", "json has no attribute 'handlers'"),
        ("json", "not of the form package.module:attribute"),
    ],
)
def test_a_broken_handlers_setting_is_a_clear_error_of_the_code_location(spec: str, told: str) -> None:
    with pytest.raises(SumaclockError, match=told) as caught:
        build(Settings(database_url=NO_SERVER, handlers=spec))
    assert spec in str(caught.value)


# ---- the sensor pending_runs


def test_the_sensor_asks_for_the_minimum_of_workers_once(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "WATCH_SECONDS", 0)

    first = tick(definitions, instance, "pending_runs")
    second = tick(definitions, instance, "pending_runs")

    (request,) = first.run_requests
    config = request.run_config["ops"]["claim_and_execute"]["config"]
    requested = app.execute("select id, code_version from sumaclock.workers").fetchall()
    assert requested == [(config["worker_id"], config["code_version"])]
    assert request.tags["sumaclock/worker"] == str(config["worker_id"])
    assert not second.run_requests
    assert "0 live, 1 starting and 0 retiring workers; 0 due runs" in second.skip_message
    assert dg.validate_run_config(definitions.resolve_job_def("work"), request.run_config)


def test_the_sensor_adds_workers_with_the_backlog(
    app_db: AppDatabase, instance: dg.DagsterInstance, app: Connection
) -> None:
    definitions = build(app_db.settings.model_copy(update={"runs_per_worker": 10, "max_workers": 3}))
    app.execute("insert into sumaclock.cron_runs (job_id) select %s from generate_series(1, 25)", [add_job(app, "x")])

    assert len(tick(definitions, instance, "pending_runs").run_requests) == 3


def test_a_database_that_is_down_fails_the_tick_with_a_clear_message_and_the_next_recovers(
    app_db: AppDatabase, instance: dg.DagsterInstance
) -> None:
    with pytest.raises(SumaclockError) as caught:
        tick(build(app_db.settings.model_copy(update={"database_url": SecretStr(NO_SERVER)})), instance, "pending_runs")
    cause = str(caught.value)
    assert "The app database can't be reached" in cause
    assert "127.0.0.1" in cause
    assert "hunter2" not in cause

    assert tick(build(app_db.settings), instance, "pending_runs").run_requests


# ---- the job work


def test_a_worker_reports_its_totals_and_goes_on_while_dagsters_storage_is_down(
    app_db: AppDatabase,
    app: Connection,
    cluster: TestCluster,
    storage: tuple[Path, str, str],
    instance: dg.DagsterInstance,
) -> None:
    settings = app_db.settings.model_copy(update={"observe_seconds": 0.2, "linger_seconds": 0.0})
    job = build(settings).resolve_job_def("work")
    ended: list[dg.ExecuteInProcessResult] = []
    thread = threading.Thread(
        target=lambda: ended.append(job.execute_in_process(instance=instance, raise_on_error=False)), daemon=True
    )
    thread.start()
    (worker,) = until(lambda: live_workers(app), 20, "a live worker")
    dagster_run_id = str(worker.dagster_run_id)
    good, bad = add_job(app, "demo"), add_job(app, "nobody_knows_it")

    def executed(job_id: uuid.UUID) -> RunStatus:
        run_id = fire(app, job_id)
        return until(lambda: (run := get_run(app, run_id)).finished_at and run, 10, f"run {run_id}").status

    assert executed(good) is RunStatus.DONE
    with connect(cluster.file.superuser_url, "test outage") as superuser:
        superuser.execute(f'alter database "{storage[2]}" allow_connections false')
        superuser.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [storage[2]])
        try:
            assert [executed(good) for _ in range(3)] == [RunStatus.DONE] * 3
        finally:
            superuser.execute(f'alter database "{storage[2]}" allow_connections true')
    assert executed(bad) is RunStatus.FAILED

    app.execute("update sumaclock.workers set retires_at = now()")
    thread.join(90)

    assert ended, "the worker retired"
    assert ended[0].success
    run = until(
        lambda: instance.get_run_by_id(dagster_run_id),
        20,
        f"Dagster run {dagster_run_id} among {[found.run_id for found in instance.get_runs()]} of {ended[0].run_id}",
    )
    assert run is not None
    assert run.tags["sumaclock/done"] == "4"
    assert run.tags["sumaclock/failed"] == "1"
    assert run.tags["sumaclock/ended"]
    assert run.tags["sumaclock/worker"] == str(worker.id)
    errors = [entry.user_message for entry in instance.all_logs(dagster_run_id) if entry.level == 40]
    assert any("No handler for kind 'nobody_knows_it'" in text for text in errors)


def test_a_worker_without_a_database_fails_with_the_reason(app_db: AppDatabase, instance: dg.DagsterInstance) -> None:
    job = build(app_db.settings.model_copy(update={"database_url": SecretStr(NO_SERVER)})).resolve_job_def("work")
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success
    (failure,) = [event for event in result.all_node_events if event.is_step_failure]
    assert "127.0.0.1" in str(failure.step_failure_data.error)
    assert "hunter2" not in str(failure)


# ---- assets and checks


def test_failed_runs_are_a_table_numbers_and_a_picture_and_fail_a_check_that_blocks_nothing(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection
) -> None:
    run_id = add_run(app, add_job(app, "demo", organization="acme"), "failed", "1 minute", "ValueError: no\n\ntrace")
    add_run(app, add_job(app, "nobody_knows_it"), "failed", "2 hours", "No handler for kind 'nobody_knows_it'")

    result = definitions.resolve_job_def("report_failures").execute_in_process(instance=instance)

    (event,) = result.get_asset_materialization_events()
    metadata = event.materialization.metadata
    assert number(metadata["failed runs"]) == 2
    assert number(metadata["failed runs of kind demo"]) == 1
    assert str(metadata["by hour"].value).startswith("![Failed runs by hour and kind](data:image/png;base64,")
    first = metadata["newest failed runs"].records[0].data  # type: ignore[attr-defined]
    assert (first["run"], first["organization"], first["error"]) == (run_id, "acme", "ValueError: no")
    linked = metadata[f"Dagster run of failed run {run_id}"]
    assert isinstance(linked, dg.DagsterRunMetadataValue)
    assert linked.run_id[:8] == first["Dagster run"]

    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert set(checks) == {"no_failed_runs", "every_kind_has_a_handler"}
    assert not checks["no_failed_runs"].passed
    assert not checks["every_kind_has_a_handler"].passed
    assert {check.severity for check in checks.values()} == {dg.AssetCheckSeverity.WARN}
    assert not any(check.blocking for check in checks.values() if check.blocking)
    assert "sumaclock runs retry" in str(checks["no_failed_runs"].description)
    assert "'nobody_knows_it'" in str(checks["every_kind_has_a_handler"].description)
    assert "'demo'" not in str(checks["every_kind_has_a_handler"].description)


def test_without_failures_both_checks_pass(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection
) -> None:
    add_job(app, "demo")
    result = definitions.resolve_job_def("report_failures").execute_in_process(instance=instance)
    assert [check.passed for check in result.get_asset_check_evaluations()] == [True, True]


def test_the_report_is_renewed_only_when_something_changed(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection
) -> None:
    first = tick(definitions, instance, "failures_changed")
    again = tick(definitions, instance, "failures_changed", first.cursor)
    add_run(app, add_job(app, "demo"), "failed", "1 minute", "E")
    changed = tick(definitions, instance, "failures_changed", again.cursor or first.cursor)

    assert [len(data.run_requests or ()) for data in (first, again, changed)] == [1, 0, 1]
    assert "Reported already" in again.skip_message


@pytest.mark.parametrize("cursor", ["nonsense", "{}", "[]", "1"])
def test_a_cursor_that_says_nothing_is_no_cursor(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection, cursor: str
) -> None:
    assert len(tick(definitions, instance, "failures_changed", cursor).run_requests) == 1


# ---- prune


def test_the_prune_job_deletes_old_runs_and_says_so(
    app_db: AppDatabase, instance: dg.DagsterInstance, app: Connection
) -> None:
    job = add_job(app, "demo")
    for ago in ("31 days", "32 days", "1 day"):
        add_run(app, job, "done", ago)

    result = build(app_db.settings).resolve_job_def("prune").execute_in_process(instance=instance)

    metadata: dict[str, object] = {}
    for event in result.all_node_events:
        if event.is_successful_output:
            metadata |= event.step_output_data.metadata
    assert number(metadata["deleted runs"]) == 2
    assert app.execute("select count(*) from sumaclock.cron_runs").fetchone() == (1,)


def test_a_connection_of_the_resource_is_closed_afterwards(app_db: AppDatabase) -> None:
    resource = build(app_db.settings).resources
    assert resource is not None
    sumaclock = resource["sumaclock"]
    assert isinstance(sumaclock, Sumaclock)
    with sumaclock.connect("test") as conn:
        assert request_worker(conn, "v") > 0
    assert conn.closed
