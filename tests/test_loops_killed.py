"""Every loop is killed half-way, really, and run again: nothing is lost, and nothing happens twice."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

import dagster as dg
import pytest
from pydantic import SecretStr

from sumaclock_dagster.calendar import zone_data_version
from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.clock.slots import SLOT_PREFIX
from sumaclock_dagster.dagster_history import open_storage
from sumaclock_dagster.db import Connection
from sumaclock_dagster.definitions import build
from sumaclock_dagster.model import ClockMode
from sumaclock_dagster.reconcile.drift import find_drift
from sumaclock_dagster.reconcile.heartbeat import beat
from sumaclock_dagster.reconcile.repair import look_for_damage, repair
from sumaclock_dagster.reconcile.sync import sync
from tests.conftest import AppDatabase, TestCluster
from tests.dagster_growth import Growth
from tests.dagster_storage import dagster_home, dagster_instance
from tests.loop_process import RETENTION_DAYS, dies, prune_dagster
from tests.reconcile import NEVER_SOON, insert_jobs, insert_tasks
from tests.slots import in_slots
from tests.test_dagster_history import NOW, OLD, execute

RECONCILE = "sumaclock_dagster.reconcile"
MENDER = f"{RECONCILE}.mender:Mender"


def damage(app: Connection, superuser: Connection) -> set[UUID]:
    """Jobs without clock jobs, one of them a task's whose row is wrong as well. Returns their ids."""
    insert_tasks(superuser, 1, "now() + interval '30 days'", zone_data_version())
    app.execute("update sumaclock.cron_jobs set schedule = '1 1 1 1 *'")
    insert_jobs(app, 20)
    app.execute("update sumaclock.cron_jobs set updated_at = now() - interval '5 minutes'")
    return {row[0] for row in app.execute("select id from sumaclock.cron_jobs").fetchall()}


@pytest.mark.parametrize("loop", ["sync", "repair"])
@pytest.mark.parametrize(
    ("mode", "where", "half_way"),
    [
        ("jobs", f"{MENDER}._mend_locked", 0),
        # Two databases can't share a transaction: pg_cron has committed here, and the app database never does.
        ("jobs", f"{MENDER}._mend_rows", 21),
        ("slots", f"{MENDER}._mend_rows", 0),
        ("slots", f"{RECONCILE}.mender:remove_slots", 21),
    ],
)
def test_a_sync_and_a_repair_that_are_killed_are_finished_by_the_next(
    loop: str, mode: ClockMode, where: str, half_way: int, app: Connection, superuser: Connection, app_db: AppDatabase
) -> None:
    jobs = damage(app, superuser)
    with open_clock(app, app_db.cron_url, mode) as clock:
        clock.schedule(uuid4(), NEVER_SOON)
        assert dies(loop, where, app_db.app_url, app_db.cron_url, mode)

        fires = in_slots(app) if mode == "slots" else {job.job_id for job in clock.listed()} & jobs
        assert len(fires) == half_way
        left = sync(app, clock).left if loop == "sync" else repair(app, clock).sync.left
        assert left == find_drift(app, clock) == []
        fires = in_slots(app) if mode == "slots" else {job.job_id for job in clock.listed()}
        assert fires == jobs
        assert len(clock.listed(SLOT_PREFIX)) == (2 if mode == "slots" else 0)
        assert sync(app, clock).found == []


def test_a_repair_that_is_killed_before_it_asks_for_placements_asks_when_it_is_run_again(
    app: Connection, superuser: Connection, app_db: AppDatabase
) -> None:
    insert_tasks(superuser, 3, "now() + interval '30 days'", "1999z")
    app.execute("update sumaclock.ai_tasks set updated_at = now() - interval '5 minutes'")
    assert dies("repair", f"{RECONCILE}.repair:_zone_query", app_db.app_url, app_db.cron_url)
    with open_clock(app, app_db.cron_url) as clock:
        assert find_drift(app, clock) == [], "what came before is done"
        assert (look_for_damage(app, clock).other_zone_data, repair(app, clock).other_zone_data) == (3, 3)
        assert repair(app, clock).other_zone_data == 0
    written = "select count(*), count(distinct job_id) from sumaclock.cron_runs"
    assert app.execute(written).fetchone() == (3, 3)


def test_a_heartbeat_that_is_killed_with_all_runs_written_has_fired_none_and_the_next_fires_each_once(
    app: Connection, superuser: Connection, app_db: AppDatabase
) -> None:
    insert_tasks(superuser, 5, "now() - interval '5 minutes'", zone_data_version())
    insert_jobs(app, 5, "* * * * *")
    app.execute("update sumaclock.cron_jobs set updated_at = now() - interval '1 hour'")
    app.execute("update sumaclock.missed_firings_look set looked_until = now() - interval '30 minutes'")
    assert dies("heartbeat", f"{RECONCILE}.heartbeat:_due", app_db.app_url, app_db.cron_url)
    written = "select count(*), count(distinct job_id) from sumaclock.cron_runs"
    assert app.execute(written).fetchone() == (0, 0)
    done, again = beat(app, RETENTION_DAYS), beat(app, RETENTION_DAYS)
    assert (len(done.tasks), len(done.jobs), len(again.tasks)) == (5, 5, 0)
    # A minute may have turned in between.
    assert len(again.jobs) in (0, 5)
    assert app.execute("select count(distinct job_id) from sumaclock.cron_runs").fetchone() == (10,)


@pytest.fixture
def home(cluster: TestCluster) -> Iterator[tuple[Path, str]]:
    with dagster_home(cluster, f"d_{uuid.uuid4().hex[:10]}") as (folder, url):
        yield folder, url


@pytest.fixture
def growth(home: tuple[Path, str], app_db: AppDatabase) -> Iterator[Growth]:
    """With a Dagster run of today, so that none of the others is the latest of an asset."""
    with dagster_instance(*home) as instance, open_storage(home[1], "test") as storage:
        yield Growth(instance, storage, home[0] / "storage")


@pytest.fixture
def definitions(app_db: AppDatabase, home: tuple[Path, str]) -> dg.Definitions:
    return build(app_db.settings.model_copy(update={"dagster_database_url": SecretStr(home[1])}))


@pytest.mark.parametrize(
    "where",
    [
        # The row of the Dagster run is gone then, and its events are not.
        "dagster_postgres.event_log:PostgresEventLogStorage.delete_events",
        "sumaclock_dagster.dagster_history:prune_checks",
    ],
)
def test_a_prune_of_dagsters_history_that_is_killed_is_finished_by_the_next(
    where: str, definitions: dg.Definitions, growth: Growth, home: tuple[Path, str]
) -> None:
    template = execute(definitions, growth, "report_failures")
    old = [growth.copy_run(template, OLD, code="old") for _ in range(3)]
    latest = growth.copy_run(template, NOW)
    assert dies("prune_dagster", where, str(home[0]), home[1])
    assert leftovers(growth, old) > 0
    prune_dagster(*home)
    assert leftovers(growth, old) == 0
    assert growth.instance.has_run(latest)


def test_two_prunes_of_dagsters_history_at_once_do_not_stand_in_each_others_way(
    definitions: dg.Definitions, growth: Growth, home: tuple[Path, str]
) -> None:
    template = execute(definitions, growth, "report_failures")
    old = [growth.copy_run(template, OLD) for _ in range(10)]
    latest = growth.copy_run(template, NOW)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(prune_dagster, *home) for _ in "12"]:
            done.result(120)
    assert leftovers(growth, old) == 0
    assert growth.instance.has_run(latest)


def leftovers(growth: Growth, run_ids: list[str]) -> int:
    """Rows of these Dagster runs in Dagster's database, and of their snapshots."""
    row = growth.storage.execute(
        "select (select count(*) from runs where run_id = any (%(ids)s))"
        " + (select count(*) from event_logs where run_id = any (%(ids)s))"
        " + (select count(*) from asset_check_executions where run_id = any (%(ids)s))"
        " + (select count(*) from snapshots where snapshot_id like '%%-old')",
        {"ids": run_ids},
    ).fetchone()
    assert row is not None
    return int(row[0])
