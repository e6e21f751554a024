"""Rule 14 for Dagster's own history: what of ours ends, what stays, and that storage stops growing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from pydantic import SecretStr

from sumaclock_dagster.clock.system_jobs import system_clock_jobs
from sumaclock_dagster.dagster_history import open_storage, why_not_storage
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.definitions import build
from sumaclock_dagster.defs.dagster_history import label_of, prune, purge_ticks, runs_to_keep
from sumaclock_dagster.defs.own import OWN_ASSETS, OWN_INSTIGATORS, OWN_JOBS
from sumaclock_dagster.defs.prune_dagster import prune_dagster_schedule
from sumaclock_dagster.model import SumaclockError
from tests.conftest import AppDatabase, TestCluster
from tests.dagster_growth import Growth
from tests.dagster_storage import dagster_home, dagster_instance
from tests.reconcile import cron_as_superuser

NOW = datetime.now(UTC)
DAYS = 30
CUTOFF = NOW - timedelta(days=DAYS)
OLD = NOW - timedelta(days=45)


@pytest.fixture
def url(cluster: TestCluster) -> Iterator[tuple[Path, str]]:
    with dagster_home(cluster, f"d_{uuid.uuid4().hex[:10]}") as (folder, url):
        yield folder, url


@pytest.fixture
def growth(url: tuple[Path, str]) -> Iterator[Growth]:
    folder, address = url
    with dagster_instance(folder, address) as instance, open_storage(address, "test") as storage:
        yield Growth(instance, storage, folder / "storage")


@pytest.fixture
def definitions(app_db: AppDatabase, url: tuple[Path, str]) -> dg.Definitions:
    return build(app_db.settings.model_copy(update={"dagster_database_url": SecretStr(url[1])}))


def execute(definitions: dg.Definitions, growth: Growth, job: str) -> str:
    result = definitions.resolve_job_def(job).execute_in_process(instance=growth.instance)
    assert result.success
    return result.run_id


def silent(_: str) -> None: ...


def test_storage_stops_growing(definitions: dg.Definitions, growth: Growth, app_db: AppDatabase) -> None:
    """60 days with a prune each day: after day 40, 50 and 60 there are as many rows and files, in as much space."""
    templates = [execute(definitions, growth, job) for job in ("report_failures", "report_health")]
    rare = execute(definitions, growth, "report_tasks")
    states = [
        growth.add_instigator("pending_runs", InstigatorType.SENSOR, "ours"),
        growth.add_instigator("repair", InstigatorType.SCHEDULE, "ours"),
    ]
    label = states[0].origin.repository_origin.get_label()
    start = NOW - timedelta(days=60)
    last_of_rare = growth.copy_run(rare, start)
    counts, sizes, log = {}, {}, {}
    with cron_as_superuser(app_db) as cron, connect(app_db.cron_url, "test log") as as_app:
        for day in range(1, 61):
            today = start + timedelta(days=day)
            for template in templates:
                growth.copy_in_bulk(template, [today - timedelta(hours=3)], code=f"v{day // 3}")
            if day % 5 == 0:
                for state in states:
                    growth.add_ticks(state, today - timedelta(hours=1))
            _a_day_of_firings(cron, app_db.name)
            as_app.execute(next(job.command for job in system_clock_jobs() if job.what == "prune_log").encode())
            # Before, there is nothing of that age.
            if day >= DAYS and day % 5 == 0:
                purge_ticks(growth.instance, label, today, DAYS)
            if day >= DAYS:
                prune(growth.instance, growth.storage, None, today - timedelta(days=DAYS), silent)
                growth.vacuum()
            if day in (40, 50, 60):
                counts[day], sizes[day] = growth.counts(), growth.sizes()
                log[day] = _log_of(cron, app_db.name)
        cron.execute("delete from cron.job_run_details where database = %s", [app_db.name])

    # What is kept for 30 days differs by the phase of the code's changes and of failure ticks, which have 90 days.
    for table in counts[60]:
        if table not in ("snapshots", "job_ticks", "files"):
            assert counts[40][table] == counts[50][table] == counts[60][table], (table, counts)
    assert abs(counts[60]["snapshots"] - counts[40]["snapshots"]) <= 4, counts
    assert log[40] == log[50] == log[60] == 7 * FIRINGS_A_DAY
    # The three that were executed today, and the one that an asset still shows.
    assert counts[60]["runs"] == DAYS * 2 + 3 + 1
    for table in sizes[60]:
        if table != "job_ticks":
            # Without the prunes it would be half as much again; free space is never used up to the last byte.
            assert sizes[60][table] <= sizes[40][table] * 1.05, (table, sizes)
    latest = growth.instance.get_latest_materialization_event(dg.AssetKey("task_runs"))
    assert latest is not None
    assert latest.run_id == last_of_rare, "an asset still shows what it was last, 60 days ago"
    assert growth.instance.has_run(last_of_rare)


FIRINGS_A_DAY = 50


def _a_day_of_firings(cron: Connection, database: str) -> None:
    cron.execute(
        "update cron.job_run_details set start_time = start_time - interval '1 day', end_time = end_time - interval"
        " '1 day' where database = %s",
        [database],
    )
    cron.execute(
        "insert into cron.job_run_details (jobid, database, username, command, status, start_time, end_time)"
        " select 1, %s, 'sumaclock_app', 'x', 'succeeded', now() - interval '1 hour', now() - interval '1 hour'"
        " from generate_series(1, %s)",
        [database, FIRINGS_A_DAY],
    )


def _log_of(cron: Connection, database: str) -> int:
    row = cron.execute("select count(*) from cron.job_run_details where database = %s", [database]).fetchone()
    assert row is not None
    return int(row[0])


def test_what_is_not_ours_or_has_not_ended_stays(definitions: dg.Definitions, growth: Growth) -> None:
    template = execute(definitions, growth, "report_failures")
    theirs = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("theirs"), "__repository__")
    elsewhere = RemoteJobOrigin(theirs, "sync")
    orders = frozenset({dg.AssetKey("orders")})
    ours = frozenset({dg.AssetKey("clock_health")})
    implicit: dict[str, Any] = {"job_name": "__ASSET_JOB"}
    stay = {
        "a user's job": growth.copy_run(template, OLD, job_name="users_job"),
        "a user's asset": growth.copy_run(template, OLD, asset_selection=orders, **implicit),
        "both at once": growth.copy_run(template, OLD, asset_selection=orders | ours, **implicit),
        "all assets": growth.copy_run(template, OLD, asset_selection=None, **implicit),
        "another code location": growth.copy_run(template, OLD, job_name="sync", remote_job_origin=elsewhere),
        "running": growth.copy_run(template, OLD, job_name="work", status=dg.DagsterRunStatus.STARTED),
        "young": growth.copy_run(template, NOW - timedelta(days=29)),
    }
    go = [
        growth.copy_run(template, OLD),
        growth.copy_run(template, OLD, job_name="work", status=dg.DagsterRunStatus.CANCELED),
        growth.copy_run(template, OLD, asset_selection=ours, **implicit),
    ]
    stay["latest of an asset"] = growth.copy_run(template, OLD)
    events = {name: len(growth.instance.all_logs(run_id)) for name, run_id in stay.items()}
    assert min(events.values()) > 10

    deleted = prune(growth.instance, growth.storage, None, CUTOFF, silent)

    assert deleted.dagster_runs == len(go)
    assert [run_id for run_id in go if growth.instance.has_run(run_id)] == []
    assert [name for name, run_id in stay.items() if not growth.instance.has_run(run_id)] == []
    assert {name: len(growth.instance.all_logs(run_id)) for name, run_id in stay.items()} == events
    assert all((growth.logs / run_id).is_dir() for run_id in stay.values())
    assert not any((growth.logs / run_id).exists() for run_id in go)
    kept = growth.storage.execute("select distinct run_id from asset_check_executions").fetchall()
    assert {row[0] for row in kept} == {template, *stay.values()}
    # From the other code location only what is its own goes.
    assert prune(growth.instance, growth.storage, theirs.get_label(), CUTOFF, silent).dagster_runs == 1
    assert not growth.instance.has_run(stay["another code location"])


def test_leftovers_of_an_interrupted_prune_go_and_others_leftovers_stay(
    definitions: dg.Definitions, growth: Growth
) -> None:
    template = execute(definitions, growth, "report_failures")
    ours, users, young = (
        growth.copy_run(template, OLD),
        growth.copy_run(template, OLD),
        growth.copy_run(template, NOW - timedelta(days=2)),
    )
    latest = growth.copy_run(template, NOW)
    growth.storage.execute(
        """update event_logs set event = replace(event, '"report_failures"', '"users_job"') where run_id = %s""",
        [users],
    )
    # Reported without any Dagster run, by whoever.
    growth.instance.report_runless_asset_event(dg.AssetMaterialization("orders"))
    growth.storage.execute("update event_logs set timestamp = %s where run_id = ''", [OLD])
    # As if the process had ended between the two halves of Dagster's delete.
    for run_id in (ours, users, young):
        growth.instance.run_storage.delete_run(run_id)

    deleted = prune(growth.instance, growth.storage, None, CUTOFF, silent)

    assert (deleted.dagster_runs, deleted.runs_of_events) == (0, 1)
    assert [len(growth.instance.all_logs(run_id)) > 0 for run_id in (ours, users, young, latest)] == [
        False,
        True,
        True,
        True,
    ]
    assert growth.storage.execute("select count(*) from event_logs where run_id = ''").fetchone() == (1,)
    # Both were of checks of our assets; what a check last said is the latest's.
    assert deleted.check_executions == 4
    assert not (growth.logs / ours).exists()


def test_snapshots_go_with_the_last_that_needs_them(definitions: dg.Definitions, growth: Growth) -> None:
    template = execute(definitions, growth, "report_failures")
    first, second = (growth.copy_run(template, OLD, code="old") for _ in "12")
    third = growth.copy_run(template, OLD, code="older")
    users = growth.copy_run(template, OLD, code="older", job_name="users_job", job_snapshot_id=None)
    latest = growth.copy_run(template, NOW)
    before = growth.counts()["snapshots"]

    assert prune(growth.instance, growth.storage, None, CUTOFF, silent).dagster_runs == 3
    assert [growth.instance.has_run(run_id) for run_id in (first, second, third, users, latest)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    # Of "old" the job's and the plan's; of "older" the job's alone where the plan is needed.
    left = growth.storage.execute("select snapshot_id from snapshots").fetchall()
    run = growth.instance.get_run_by_id(latest)
    assert run is not None
    assert {run.job_snapshot_id, run.execution_plan_snapshot_id} <= {row[0] for row in left}
    assert not any(str(row[0]).endswith("-old") for row in left)
    assert growth.counts()["snapshots"] < before


def test_ticks_end_by_the_instances_retention_and_their_log_lines_with_them(growth: Growth) -> None:
    ours = growth.add_instigator("pending_runs", InstigatorType.SENSOR, "ours")
    users = growth.add_instigator("users_sensor", InstigatorType.SENSOR, "ours")
    elsewhere = growth.add_instigator("alerts", InstigatorType.SENSOR, "theirs")
    for state in (ours, users, elsewhere):
        for ago in (100, 10, 0.1):
            growth.add_ticks(state, NOW - timedelta(days=ago))

    label = ours.origin.repository_origin.get_label()
    # dagster.yaml: sensors keep skipped ticks 1 day, failures 30, others 7; all are older than 90.
    assert purge_ticks(growth.instance, label, NOW, DAYS) == 4 + 3
    left = {
        state.instigator_name: len(growth.instance.get_ticks(state.instigator_origin_id, state.selector_id))
        for state in (ours, users, elsewhere)
    }
    assert left == {"pending_runs": 5, "users_sensor": 12, "alerts": 12}
    assert len(list((growth.logs / "__repository__" / "pending_runs").iterdir())) == 5
    assert len(list((growth.logs / "__repository__" / "users_sensor").iterdir())) == 12
    assert purge_ticks(growth.instance, label, NOW, DAYS) == 0


def test_the_schedule_looks_first_and_the_job_says_what_it_deleted(definitions: dg.Definitions, growth: Growth) -> None:
    template = execute(definitions, growth, "report_failures")

    def look() -> list[dg.RunRequest] | None:
        with dg.build_schedule_context(
            instance=growth.instance, resources=dict(definitions.resources or {}), repository_def=None
        ) as context:
            return list(prune_dagster_schedule.evaluate_tick(context).run_requests or [])

    assert look() == []
    old = growth.copy_run(template, OLD)
    assert look() == [], "the latest of an asset is no work"
    growth.copy_run(template, NOW)
    assert len(look() or []) == 1
    result = definitions.resolve_job_def("prune_dagster").execute_in_process(instance=growth.instance)
    metadata = next(e.step_output_data.metadata for e in result.all_node_events if e.is_successful_output)
    assert metadata["deleted dagster runs"].value == 1
    assert not growth.instance.has_run(old)
    assert look() == []


def test_another_instances_database_is_not_touched(growth: Growth, cluster: TestCluster, url: tuple[Path, str]) -> None:
    own = growth.instance.run_storage.get_run_storage_id()  # type: ignore[attr-defined]
    assert why_not_storage(growth.storage, own) == ""
    assert why_not_storage(growth.storage, "another") == "It is another Dagster instance's."
    with connect(cluster.file.database_url, "test none") as none:
        assert why_not_storage(none, own).startswith("It has no table runs, event_logs")
    with pytest.raises(SumaclockError, match="Dagster's database can't be reached") as refused:
        open_storage("postgresql+psycopg2://ada:hunter2@127.0.0.1:1/x", "test")
    assert "hunter2" not in str(refused.value)


def test_all_names_of_ours_are_known(definitions: dg.Definitions) -> None:
    repository = definitions.get_repository_def()
    names = {name for name in repository.job_names if not name.startswith("__")}
    assert names == set(OWN_JOBS)
    schedules, sensors = repository.schedule_defs, repository.sensor_defs
    assert {*(found.name for found in schedules), *(found.name for found in sensors)} == set(OWN_INSTIGATORS)
    assert repository.asset_graph.get_all_asset_keys() == set(OWN_ASSETS)


def test_a_dagster_run_within_a_process_has_no_label(definitions: dg.Definitions, growth: Growth) -> None:
    run = growth.instance.get_run_by_id(execute(definitions, growth, "report_failures"))
    assert run is not None
    assert label_of(run) is None
    assert run.run_id in runs_to_keep(growth.instance)
