"""System clock jobs: made by first boot, kept by a sync, listed and cleared by the CLI, and nobody else's touched."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from sumaclock_dagster.cli.main import main
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.clock.system_jobs import clear_system, list_system, system_clock_jobs
from sumaclock_dagster.db import Connection, connect, query, with_database
from sumaclock_dagster.reconcile.drift import DriftKind, find_drift
from sumaclock_dagster.reconcile.repair import look_for_damage, repair
from sumaclock_dagster.reconcile.sync import sync
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.reconcile import cron_as_superuser, new_job
from tests.waiting import until

ROLE = "sumaclock_app"


@pytest.fixture
def cron(app_db: AppDatabase) -> Iterator[Connection]:
    with cron_as_superuser(app_db) as conn:
        yield conn


@pytest.fixture
def clock(app: Connection, app_db: AppDatabase) -> Iterator[Clock]:
    with open_clock(app, app_db.cron_url) as opened:
        yield opened


def rows_of(cron: Connection, database: str) -> list[tuple[str, str, str, str, str, bool]]:
    """(what, schedule, command, database, username, active)."""
    prefix = f"{database}:system:"
    return cron.execute(
        "select substr(jobname::text, length(%(p)s) + 1), schedule, command, database::text, username::text, active"
        " from cron.job where starts_with(jobname::text, %(p)s) order by jobname",
        {"p": prefix},
    ).fetchall()


def wanted() -> list[tuple[str, str, str, str, str, bool]]:
    return sorted((job.what, job.schedule, job.command, "postgres", ROLE, True) for job in system_clock_jobs())


def test_first_boot_makes_what_the_code_says(app: Connection, clock: Clock, cron: Connection) -> None:
    assert rows_of(cron, clock.database_name) == wanted()
    assert find_drift(app, clock) == []
    assert look_for_damage(app, clock).is_none


def test_names_fit_where_pg_cron_cuts_them() -> None:
    longest = max(len(f":system:{job.what}") for job in system_clock_jobs())
    assert 21 + longest <= 63


BY_HAND: list[tuple[DriftKind, str]] = [
    (DriftKind.MISSING, "delete from cron.job where jobname = %(name)s"),
    (DriftKind.SCHEDULE, "update cron.job set schedule = '1 1 1 1 *' where jobname = %(name)s"),
    (DriftKind.COMMAND, "update cron.job set command = 'select 1' where jobname = %(name)s"),
    (DriftKind.DISABLED, "update cron.job set active = false where jobname = %(name)s"),
    (DriftKind.DATABASE, "update cron.job set database = 'gone_for_good' where jobname = %(name)s"),
    (DriftKind.PLACE, "update cron.job set nodename = 'old.primary', nodeport = 1 where jobname = %(name)s"),
]


@pytest.mark.parametrize("what", [job.what for job in system_clock_jobs()])
@pytest.mark.parametrize(("kind", "by_hand"), BY_HAND, ids=[kind.value for kind, _ in BY_HAND])
def test_drift_of_a_system_clock_job_is_found_and_mended(
    kind: DriftKind, by_hand: str, what: str, app: Connection, clock: Clock, cron: Connection
) -> None:
    cron.execute(by_hand, {"name": f"{clock.database_name}:system:{what}"})

    found = find_drift(app, clock)
    assert {(drift.job_id, drift.system, drift.left) for drift in found} == {(None, what, "")}
    assert [drift.kind for drift in found] == [kind]
    report = sync(app, clock)
    assert (report.mended, report.left) == (found, [])
    assert rows_of(cron, clock.database_name) == wanted()
    assert sync(app, clock).found == []


def test_an_existing_deployment_gets_them_with_its_next_repair(app: Connection, clock: Clock, cron: Connection) -> None:
    job_id = new_job(app, clock)
    assert clear_system(clock) == len(system_clock_jobs())
    assert not look_for_damage(app, clock).is_none
    report = repair(app, clock).sync
    assert (report.placed, report.removed, report.left) == (len(system_clock_jobs()), 0, [])
    assert rows_of(cron, clock.database_name) == wanted()
    assert [job.job_id for job in clock.listed()] == [job_id]


def test_rule_10_a_hostile_neighbours_names_stay_untouched(
    app: Connection, clock: Clock, cron: Connection, cluster: TestCluster
) -> None:
    name, neighbour = clock.database_name, f"{clock.database_name}_neighbour"
    # Databases whose own clock jobs begin with our prefix, one of another role with our very name, one in a database
    # of its own, and one that a pattern would take for ours.
    hostile = [
        (f"{name}:system:canary:cron:0b9b4c2e-0000-4000-8000-000000000000", "template1", ROLE),
        (f"{name}:system:canary:system:canary", "postgres", ROLE),
        (f"{name}:system:canary", "postgres", neighbour),
        (f"{name}:system:job-of-a-newer-version", "template1", ROLE),
        (f"{name[:-1]}_:system:canary", "postgres", ROLE),
    ]
    cron.execute(f"create role {neighbour} login")
    try:
        for jobname, database, role in hostile:
            cron.execute(
                "insert into cron.job (jobname, schedule, command, nodeport, database, username, active)"
                " values (%s, '0 0 1 1 *', 'select 1', 1, %s, %s, false)",
                [jobname, database, role],
            )
        kept = "select * from cron.job where schedule = '0 0 1 1 *' and command = 'select 1' order by jobid"
        before = cron.execute(kept).fetchall()
        assert len(before) == len(hostile)
        assert find_drift(app, clock) == []
        assert clear_system(clock) == len(system_clock_jobs())
        assert sync(app, clock).placed == len(system_clock_jobs())
        assert repair(app, clock).sync.found == []
        assert cron.execute(kept).fetchall() == before
    finally:
        cron.execute("delete from cron.job where schedule = '0 0 1 1 *' and command = 'select 1'")
        cron.execute(f"drop role {neighbour}")


def test_two_deployments_have_their_own(
    app: Connection, clock: Clock, cron: Connection, cluster: TestCluster, app_db: AppDatabase
) -> None:
    other = make_app_database(cluster, f"{app_db.name[:-2]}_o")
    try:
        clear_system(clock)
        assert rows_of(cron, other.name) == wanted()
        with connect(other.app_url, "test other") as conn, open_clock(conn, other.cron_url) as others:
            assert find_drift(conn, others) == []
            clear_system(others)
        assert sync(app, clock).left == []
        assert rows_of(cron, other.name) == []
        assert rows_of(cron, app_db.name) == wanted()
    finally:
        drop_app_database(cluster, other.name)


def test_many_syncs_at_once_place_each_once(app_db: AppDatabase, clock: Clock, cron: Connection) -> None:
    clear_system(clock)

    def one(_: int) -> int:
        with connect(app_db.app_url, "test sync") as conn, open_clock(conn, app_db.cron_url) as opened:
            return len(sync(conn, opened).left)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(4))) == [0, 0, 0, 0]
    assert rows_of(cron, clock.database_name) == wanted()


def test_a_canary_under_way_does_not_bring_back_what_is_cleared(app_db: AppDatabase, clock: Clock) -> None:
    """It read its own row and has not written it yet: whoever clears waits for it."""
    with connect(app_db.cron_url, "test canary") as canary, ThreadPoolExecutor(1) as pool:
        with canary.transaction():
            canary.execute(query("touch_clock_jobs"))
            cleared = pool.submit(clear_system, clock)
            with connect(with_database(app_db.superuser_url, "postgres"), "test look") as look:
                waiting = "select from pg_locks where locktype = 'advisory' and not granted"
                until(lambda: look.execute(waiting).fetchall(), what="the clearing to wait for the canary")
            assert not cleared.done()
        assert cleared.result(10) == len(system_clock_jobs())
    assert list_system(clock) == []


def test_clock_list_counts_them_and_clock_clear_takes_them_away(
    app: Connection, clock: Clock, cron: Connection, app_db: AppDatabase
) -> None:
    new_job(app, clock)
    environment = {
        "SUMACLOCK_DATABASE_URL": app_db.app_url,
        "SUMACLOCK_CRON_DATABASE_URL": app_db.cron_url,
    }
    number = len(system_clock_jobs()) + 1
    runner = CliRunner()
    listed = runner.invoke(main, ["clock", "list"], env=environment)
    assert f"{number} clock jobs." in listed.output
    for job in system_clock_jobs():
        assert f"system {job.what}" in listed.output
    cleared = runner.invoke(main, ["clock", "clear", "--yes"], env=environment)
    assert f"{number} clock jobs of database" in cleared.output, cleared.output
    assert rows_of(cron, app_db.name) == []
    drifted = runner.invoke(main, ["drift"], env=environment)
    assert (drifted.exit_code, "system canary" in drifted.output) == (1, True)
