"""Heartbeat, repair and sync in Dagster: what a schedule's evaluation sees, and what its Dagster run does and shows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from sumaclock_dagster.calendar import zone_data_version
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection, connect, with_database
from sumaclock_dagster.definitions import build
from sumaclock_dagster.defs.loops import find_gone
from sumaclock_dagster.once.runners import list_runner_jobs
from sumaclock_dagster.queue import workers
from tests.conftest import AppDatabase, TestCluster
from tests.dagster_storage import dagster_home, dagster_instance
from tests.reconcile import insert_jobs, insert_tasks, new_job


@pytest.fixture(scope="module")
def storage(cluster: TestCluster) -> Iterator[tuple[dg.DagsterInstance, str]]:
    name = f"d_{uuid.uuid4().hex[:10]}"
    with dagster_home(cluster, name) as (folder, url), dagster_instance(folder, url) as instance:
        yield instance, name


@pytest.fixture
def instance(storage: tuple[dg.DagsterInstance, str]) -> dg.DagsterInstance:
    return storage[0]


@pytest.fixture
def definitions(app_db: AppDatabase) -> dg.Definitions:
    return build(app_db.settings)


@pytest.fixture
def clock(app: Connection, app_db: AppDatabase) -> Iterator[Clock]:
    with open_clock(app, app_db.cron_url) as opened:
        yield opened


def tick(definitions: dg.Definitions, instance: dg.DagsterInstance, name: str) -> str | None:
    """The reason of a skip, or None where a Dagster run is launched."""
    repository = definitions.get_repository_def()
    context = dg.build_schedule_context(instance=instance, repository_def=repository, resources=definitions.resources)
    data = repository.get_schedule_def(name).evaluate_tick(context)
    assert bool(data.run_requests) != bool(data.skip_message)
    return data.skip_message


def launch(definitions: dg.Definitions, instance: dg.DagsterInstance, job: str, config: Any = None) -> dict[str, Any]:
    """The metadata of all outputs and materialisations of a Dagster run, by asset key or op name."""
    result = definitions.resolve_job_def(job).execute_in_process(instance=instance, run_config=config)
    assert result.success
    told = {}
    for event in result.all_node_events:
        if event.is_step_materialization:
            told[event.asset_key.to_user_string()] = event.step_materialization_data.materialization.metadata
        elif event.is_successful_output and event.step_output_data.metadata:
            told.setdefault(event.node_name, event.step_output_data.metadata)
    return {name: {key: value.value for key, value in metadata.items()} for name, metadata in told.items()}


def lines(value: Any) -> list[dict[str, Any]]:
    return [record.data for record in value]


def test_a_quiet_day_launches_nothing_and_says_what_was_seen(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection, clock: Clock
) -> None:
    new_job(app, clock)
    assert tick(definitions, instance, "heartbeat") == (
        "No task is late by 3 minutes or more, and no job missed a firing."
    )
    assert tick(definitions, instance, "repair") == (
        "No drift, no task to be placed, no Dagster run without its worker."
    )
    assert tick(definitions, instance, "sync") == "No drift."


def test_the_heartbeat_fires_what_is_late_and_shows_why(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection, superuser: Connection
) -> None:
    insert_tasks(superuser, 2, "now() - interval '10 minutes'", zone_data_version())
    assert tick(definitions, instance, "heartbeat") is None
    told = launch(definitions, instance, "heartbeat")["fire_what_is_late"]
    assert (told["late tasks"], told["missed firings"]) == (2, 0)
    assert [line["why"] for line in lines(told["fired"].records)] == ["It has no clock job."] * 2
    assert app.execute("select count(*) from sumaclock.cron_runs where trigger = 'catch_up'").fetchone() == (2,)
    assert tick(definitions, instance, "heartbeat") is not None


def test_the_heartbeat_shows_what_jobs_missed(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection
) -> None:
    caught_up, skipped = insert_jobs(app, 2, "* * * * *")
    app.execute("update sumaclock.cron_jobs set catch_up = 'none' where id = %s", [skipped])
    app.execute("update sumaclock.cron_jobs set updated_at = now() - interval '1 hour'")
    app.execute("update sumaclock.missed_firings_look set looked_until = now() - interval '30 minutes'")
    assert tick(definitions, instance, "heartbeat") is None
    told = launch(definitions, instance, "heartbeat")["fire_what_is_late"]
    why = {line["id"]: line["why"] for line in lines(told["fired"].records)}
    # The server of the tests may be younger than the minute.
    assert why[caught_up.hex] == "The clock missed it." or why[caught_up.hex].startswith("PostgreSQL was started at")
    assert why[skipped.hex] == f"Skipped: its catch-up policy is none. {why[caught_up.hex]}"


def test_sync_mends_and_the_assets_show_what_was_changed(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection, clock: Clock
) -> None:
    missing = insert_jobs(app, 2)
    (bad,) = insert_jobs(app, 1, "@yearly")
    clock.schedule(orphan := uuid.uuid4(), "1 1 1 1 *")
    assert tick(definitions, instance, "sync") is None

    dry = launch(definitions, instance, "sync", {"ops": {"sync_report": {"config": {"dry_run": True}}}})
    assert (dry["sync_report"]["found"], dry["sync_report"]["mended"], dry["schedule_drift"]["drift"]) == (4, 0, 4)
    assert [job.job_id for job in clock.listed()] == [orphan]

    told = launch(definitions, instance, "sync")
    report, drift = told["sync_report"], told["schedule_drift"]
    assert report["runners of one-off commands"] > 0
    assert list_runner_jobs(clock)
    assert (report["found"], report["mended"], report["left over"], report["dry run"]) == (4, 3, 1, False)
    assert (report["clock jobs placed"], report["clock jobs removed"]) == (2, 1)
    assert {line["job"] for line in lines(report["changes"].records)} == {job.hex for job in (*missing, orphan)}
    ((left,), (shown,)) = lines(report["left"].records), lines(drift["differences"].records)
    assert left["job"] == shown["job"] == bad.hex
    assert "macros are not allowed" in left["outcome"]
    assert lines(report["by kind"].records) == [
        {"kind": "missing", "found": 3, "mended": 2, "left": 1},
        {"kind": "orphan", "found": 1, "mended": 1, "left": 0},
    ]
    assert (drift["drift"], drift["missing"], drift["orphan"]) == (1, 1, 0)


def test_repair_mends_what_is_old_enough(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection, superuser: Connection, clock: Clock
) -> None:
    insert_tasks(superuser, 1, "now() + interval '9 days'", "1999z")
    app.execute("update sumaclock.cron_jobs set updated_at = now() - interval '1 hour'")
    app.execute("update sumaclock.ai_tasks set updated_at = now() - interval '1 hour'")
    assert tick(definitions, instance, "repair") is None
    told = launch(definitions, instance, "repair")["mend"]
    assert (told["mended"], told["tasks placed by other zone data"], told["tasks left half-way"]) == (1, 1, 0)
    assert len(clock.listed()) == 1


def test_dagster_runs_whose_worker_is_gone_are_reported_as_failed(
    definitions: dg.Definitions,
    storage: tuple[dg.DagsterInstance, str],
    app: Connection,
    app_db: AppDatabase,
) -> None:
    instance, dagster_db = storage
    job = definitions.resolve_job_def("work")
    gone, never_came, living, ended_just_now, young = (
        instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED) for _ in range(5)
    )
    with connect(with_database(app_db.superuser_url, dagster_db), "test age") as dagster:
        dagster.execute(
            "update runs set create_timestamp = now() at time zone 'UTC' - interval '1 hour' where run_id <> %s",
            [young.run_id],
        )
    with connect(app_db.app_url, "test worker") as session:
        for run, registers in ((gone, app), (living, session), (ended_just_now, app)):
            worker = workers.request_worker(app, "v")
            assert workers.register(
                registers,
                worker,
                code_version="v",
                dagster_run_id=uuid.UUID(run.run_id),
                host="here",
                pid=1,
                life_seconds=3600,
            )
            if registers is app:
                app.execute("select pg_advisory_unlock_all()")
                app.execute("update sumaclock.workers set stopped_at = now() where id = %s", [worker])
        app.execute(
            "update sumaclock.workers set stopped_at = now() - interval '10 minutes', heartbeat_at = now() - interval"
            " '11 minutes' where dagster_run_id = %s",
            [gone.run_id],
        )
        assert {run.run_id for run in find_gone(instance, app)} == {gone.run_id, never_came.run_id}
        assert tick(definitions, instance, "repair") is None
        assert launch(definitions, instance, "repair")["mend"]["Dagster runs without worker"] == 2

    statuses = [instance.get_run_by_id(run.run_id) for run in (gone, never_came, living, ended_just_now, young)]
    failed, started = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.STARTED
    assert [run and run.status for run in statuses] == [failed, failed, started, started, started]
    said = [entry.message for entry in instance.all_logs(gone.run_id)]
    assert any("has no session in the database any more" in text for text in said)
