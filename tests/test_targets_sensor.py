"""The sensors of targets, evaluated as the daemon does, on a real Dagster instance: ticks that die, Dagster runs that
hang, retry or are not there, and code locations that can't be reached."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from sumaclock_dagster.db import Connection
from sumaclock_dagster.defs import targets
from sumaclock_dagster.defs.following import find, follow, give_up
from sumaclock_dagster.defs.resources import Sumaclock
from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.launches import progress
from sumaclock_dagster.model import RunStatus
from sumaclock_dagster.prune import prune_launches
from sumaclock_dagster.queue.runs import get_run
from tests.conftest import AppDatabase, TestCluster
from tests.dagster_storage import dagster_home, dagster_instance
from tests.test_dagster_e2e import free_port


@dg.op
def nothing() -> None: ...


@dg.job
def nightly() -> None:
    nothing()


@dg.asset(partitions_def=dg.DynamicPartitionsDefinition(name="tenants"))
def tenants_report() -> None: ...


@pytest.fixture(scope="module")
def instance(cluster: TestCluster) -> Iterator[dg.DagsterInstance]:
    with dagster_home(cluster, f"d_{uuid.uuid4().hex[:10]}") as home, dagster_instance(*home) as instance:
        yield instance


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "WATCH_SECONDS", 0)


class Sensors:
    """Evaluates the sensors of targets."""

    def __init__(self, app_db: AppDatabase, instance: dg.DagsterInstance, **settings: Any) -> None:
        values = app_db.settings.model_copy(update=settings)
        self._instance = instance
        self._definitions = dg.Definitions(
            jobs=[nightly],
            assets=[tenants_report],
            sensors=targets.make_target_sensors([nightly], [tenants_report]),
            resources={"sumaclock": Sumaclock(settings=values, handlers=Handlers(), code_version="test")},
        )

    def tick(self, name: str = targets.JOBS_SENSOR) -> list[dg.RunRequest]:
        repository = self._definitions.get_repository_def()
        with dg.build_sensor_context(
            instance=self._instance,
            definitions=self._definitions,
            sensor_name=name,
            resources=self._definitions.resources,
        ) as context:
            return list(repository.get_sensor_def(name).evaluate_tick(context).run_requests or [])


@pytest.fixture
def sensors(app_db: AppDatabase, instance: dg.DagsterInstance) -> Sensors:
    return Sensors(app_db, instance)


def ask(app: Connection, target: object, count: int = 1) -> list[int]:
    """Runs that are handed over, each with a launch of `target`. Returns the runs' ids."""
    row = app.execute(
        "insert into sumaclock.cron_jobs (kind, organization_id, user_id, schedule)"
        " values ('dagster', 'acme', 'ada', '0 0 1 1 *') returning id"
    ).fetchone()
    assert row is not None
    runs = app.execute(
        "insert into sumaclock.cron_runs (job_id, status, claimed_by, attempts, started_at, heartbeat_at)"
        " select %s, 'running', -1, 1, now(), now() from generate_series(1, %s) returning id",
        [row[0], count],
    ).fetchall()
    app.execute(
        "insert into sumaclock.dagster_launches (cron_run_id, job_id, scheduled_for, idempotency_key, organization_id,"
        " user_id, target) select id, job_id, scheduled_at, 'cron_run:' || id, 'acme', 'ada', %s::jsonb"
        " from sumaclock.cron_runs where id = any(%s)",
        [json.dumps(target), [run[0] for run in runs]],
    )
    return [run[0] for run in runs]


def time_passes(app: Connection) -> None:
    """Nobody counts as launching any more."""
    app.execute("update sumaclock.dagster_launches set offered_until = now() - interval '1 second'")


def submit(instance: dg.DagsterInstance, request: dg.RunRequest, **more: Any) -> dg.DagsterRun:
    """What the daemon makes of a request, up to the launch."""
    return instance.create_run_for_job(nightly, tags=dict(request.tags), **more)


def state(app: Connection, run_id: int) -> tuple[str, int, str | None]:
    row = app.execute(
        "select state::text, offers, dagster_run_id::text from sumaclock.dagster_launches where cron_run_id = %s",
        [run_id],
    ).fetchone()
    assert row is not None
    return row


def test_a_tick_that_died_before_dagster_kept_it_is_made_good_later(app: Connection, sensors: Sensors) -> None:
    (run_id,) = ask(app, {"job": "nightly"})
    (lost,) = sensors.tick()
    assert sensors.tick() == [], "Dagster may be launching it"
    time_passes(app)
    (again,) = sensors.tick()
    assert (again.run_key, again.tags) == (lost.run_key, lost.tags)
    assert state(app, run_id) == ("requested", 2, None)


def test_a_tick_that_died_after_the_launch_launches_nothing_again(
    app: Connection, sensors: Sensors, instance: dg.DagsterInstance
) -> None:
    (run_id,) = ask(app, {"job": "nightly"})
    (request,) = sensors.tick()
    dagster_run = submit(instance, request)
    submit(instance, request, parent_run_id=dagster_run.run_id, root_run_id=dagster_run.run_id)
    time_passes(app)

    assert sensors.tick() == []

    assert state(app, run_id) == ("launched", 1, dagster_run.run_id), "somebody's re-execution is not the one"
    assert str(get_run(app, run_id).dagster_run_id) == dagster_run.run_id


def test_what_dagster_never_launches_fails_in_the_end_and_holds_up_nothing(app: Connection, sensors: Sensors) -> None:
    (poison,) = ask(app, {"job": "nightly"})
    for _ in range(2):
        assert len(sensors.tick()) == 1
        time_passes(app)
    others = ask(app, {"job": "nightly"}, 3)
    for _ in range(4):
        assert [request.tags["sumaclock/run"] for request in sensors.tick()] == [str(poison)], "alone"
        assert len(sensors.tick()) in (0, 3)
        time_passes(app)
        app.execute("update sumaclock.dagster_launches set offers = 1 where cron_run_id = any(%s)", [others])
    sensors.tick()
    run = get_run(app, poison)
    assert run.status is RunStatus.FAILED
    assert "asked 6 times and did not launch it" in str(run.error)


def test_an_asset_is_launched_with_its_new_dynamic_partition(
    app: Connection, sensors: Sensors, instance: dg.DagsterInstance
) -> None:
    (run_id,) = ask(app, {"assets": ["tenants_report"], "partition_key": "acme"})
    assert sensors.tick() == [], "assets have a sensor of their own"
    requests = sensors.tick(targets.ASSETS_SENSOR)
    assert len(requests) == 1, get_run(app, run_id).error
    (request,) = requests
    assert request.asset_selection == [dg.AssetKey("tenants_report")]
    assert request.tags["dagster/partition"] == "acme"
    assert instance.get_dynamic_partitions("tenants") == ["acme"]


def test_a_dagster_run_that_never_begins_fails_its_run_and_stays_ended(
    app: Connection, sensors: Sensors, instance: dg.DagsterInstance
) -> None:
    (run_id,) = ask(app, {"job": "nightly"})
    dagster_run = submit(instance, sensors.tick()[0])
    assert find(instance, app, progress.sought(app)) != set()

    assert give_up(instance, app, 600) == 0
    assert give_up(instance, app, 0) == 1

    assert "had not begun 0 s after it was launched" in str(get_run(app, run_id).error)
    ended = instance.get_run_by_id(dagster_run.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.FAILURE


def test_one_that_has_begun_takes_its_time(app: Connection, sensors: Sensors, instance: dg.DagsterInstance) -> None:
    (run_id,) = ask(app, {"job": "nightly"})
    submit(instance, sensors.tick()[0], status=dg.DagsterRunStatus.STARTED)
    find(instance, app, progress.sought(app))
    assert give_up(instance, app, 0) == 0
    assert get_run(app, run_id).status is RunStatus.RUNNING


def test_a_run_that_dagster_retries_by_itself_takes_the_outcome_of_the_last_try(
    app: Connection, sensors: Sensors, instance: dg.DagsterInstance
) -> None:
    (run_id,) = ask(app, {"job": "nightly"})
    (request,) = sensors.tick()
    first = submit(instance, request)
    find(instance, app, progress.sought(app))
    instance.add_run_tags(first.run_id, {"dagster/will_retry": "true"})
    instance.report_run_failed(first)
    assert follow(instance, app) == 1
    assert get_run(app, run_id).status is RunStatus.RUNNING

    second = submit(instance, request, parent_run_id=first.run_id, root_run_id=first.run_id)
    instance.add_run_tags(first.run_id, {"dagster/auto_retry_run_id": second.run_id})
    follow(instance, app)
    assert str(get_run(app, run_id).dagster_run_id) == second.run_id
    instance.report_run_canceled(second)
    follow(instance, app)
    assert get_run(app, run_id).error == f"Dagster run {second.run_id} was canceled."


def test_another_code_location_without_the_graphql_api_is_refused(app: Connection, sensors: Sensors) -> None:
    (run_id,) = ask(app, {"job": "export", "location": "etl"})
    assert sensors.tick() == []
    assert "set SUMACLOCK_DAGSTER_GRAPHQL_URL" in str(get_run(app, run_id).error)


def test_while_dagsters_graphql_api_is_away_launches_wait(
    app_db: AppDatabase, app: Connection, instance: dg.DagsterInstance
) -> None:
    nobody = Sensors(app_db, instance, dagster_graphql_url=f"http://127.0.0.1:{free_port()}/graphql")
    (run_id,) = ask(app, {"job": "export", "location": "etl"})
    for _ in range(8):
        assert nobody.tick() == []
        time_passes(app)
    assert get_run(app, run_id).status is RunStatus.RUNNING
    assert state(app, run_id) == ("requested", 1, None)


def test_a_row_that_names_no_target_fails_alone(app: Connection, sensors: Sensors) -> None:
    (bad,) = ask(app, {"what": "ever"})
    ask(app, {"job": "nightly"})
    assert len(sensors.tick()) == 1
    assert "kind dagster knows" in str(get_run(app, bad).error)


def test_ended_launches_are_pruned(app: Connection, sensors: Sensors) -> None:
    (old, young, open_one) = ask(app, {"job": "nightly"}, 3)
    for run_id in (old, young):
        row = app.execute("select id from sumaclock.dagster_launches where cron_run_id = %s", [run_id]).fetchone()
        assert row is not None
        progress.end(app, [progress.End(row[0])])
    app.execute("update sumaclock.dagster_launches set created_at = now() - interval '40 days'")
    app.execute(
        "update sumaclock.dagster_launches set ended_at = now() - interval '40 days' where cron_run_id = %s", [old]
    )
    assert sum(prune_launches(app, 30)) == 1
    kept = app.execute("select cron_run_id from sumaclock.dagster_launches order by 1").fetchall()
    assert [row[0] for row in kept] == [young, open_one]
