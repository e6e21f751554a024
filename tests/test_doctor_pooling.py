"""Poolers, found out by behaviour: PgBouncer for real, in each of its modes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from pydantic import SecretStr

from sumaclock_dagster.db import connect
from sumaclock_dagster.doctor import CheckOutcome, run_checks
from sumaclock_dagster.doctor.pooling import Pooling, probe
from sumaclock_dagster.embedded.configuration import APP_ROLE
from tests.bouncer import PROGRAM, WHY_SKIPPED, bouncer, through
from tests.conftest import AppDatabase, TestCluster
from tests.doctor_results import by_name, problem_of, shared_app_database


@pytest.fixture(scope="module")
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    """One for all tests here: they only look at it."""
    with shared_app_database(cluster) as app_db:
        yield app_db


needs_bouncer = pytest.mark.skipif(PROGRAM is None, reason=WHY_SKIPPED)


def test_a_direct_connection_is_a_session_of_its_own(app_db: AppDatabase) -> None:
    assert probe(app_db.app_url) == Pooling(pooler=False)


def test_a_server_without_free_connections(app_db: AppDatabase) -> None:
    with connect(app_db.superuser_url, "test") as superuser:
        superuser.execute(f"alter role {APP_ROLE} connection limit 3")
        try:
            problem, remedy = problem_of(by_name(run_checks(app_db.settings)), "sessions")
        finally:
            superuser.execute(f"alter role {APP_ROLE} connection limit -1")
    assert "4 connections at once" in problem
    assert "max_connections" in remedy


@needs_bouncer
def test_session_mode_passes(cluster: TestCluster, app_db: AppDatabase) -> None:
    with bouncer(cluster, APP_ROLE, pool_mode="session") as port:
        pooled = through(app_db, APP_ROLE, port)
        assert probe(pooled.app_url) == Pooling(pooler=True)
        results = by_name(run_checks(pooled.settings))
    assert [name for name, result in results.items() if result.outcome is not CheckOutcome.OK] == []
    assert "through a pooler" in results["sessions"].found


@needs_bouncer
def test_transaction_mode_is_refused_with_the_remedy(cluster: TestCluster, app_db: AppDatabase) -> None:
    with bouncer(cluster, APP_ROLE, pool_mode="transaction") as port:
        results = by_name(run_checks(through(app_db, APP_ROLE, port).settings))
    for name, variable in (("sessions", "SUMACLOCK_DATABASE_URL"), ("cron sessions", "SUMACLOCK_CRON_DATABASE_URL")):
        problem, remedy = problem_of(results, name)
        assert variable in problem
        assert "transaction or statement mode" in problem
        assert variable in remedy
        assert "PostgreSQL's own host and port" in remedy


@needs_bouncer
@pytest.mark.parametrize(
    ("settings", "warm"),
    [
        ({"pool_mode": "statement"}, 1),
        ({"pool_mode": "transaction", "default_pool_size": "1"}, 1),
        ({"pool_mode": "transaction", "server_round_robin": "1"}, 4),
        ({"pool_mode": "transaction"}, 4),
    ],
    ids=["statement", "one backend", "round robin", "many idle backends"],
)
def test_each_way_of_dealing_out_backends_is_seen(
    cluster: TestCluster, app_db: AppDatabase, settings: dict[str, str], warm: int
) -> None:
    with bouncer(cluster, APP_ROLE, **settings) as port:
        url = through(app_db, APP_ROLE, port).app_url
        with ExitStack() as stack:
            for _ in range(warm if warm > 1 else 0):
                stack.enter_context(connect(url, "test warm")).execute("begin")
        started = time.monotonic()
        found = probe(url)
    assert found.pooler
    assert found.fault is not None
    assert time.monotonic() - started < 5


@needs_bouncer
def test_transaction_mode_is_seen_while_other_clients_hold_every_other_backend(
    cluster: TestCluster, app_db: AppDatabase
) -> None:
    with bouncer(cluster, APP_ROLE, pool_mode="transaction", default_pool_size="3") as port, ExitStack() as stack:
        url = through(app_db, APP_ROLE, port).app_url
        for _ in range(2):
            stack.enter_context(connect(url, "test other")).execute("begin")
        assert probe(url).fault is not None


@needs_bouncer
def test_a_full_session_pool_is_told_from_transaction_mode_and_hangs_nobody(
    cluster: TestCluster, app_db: AppDatabase
) -> None:
    with bouncer(cluster, APP_ROLE, pool_mode="session", default_pool_size="1") as port:
        url = through(app_db, APP_ROLE, port).app_url
        started = time.monotonic()
        assert probe(url, patience_seconds=1) == Pooling(pooler=True, full=True)
    assert time.monotonic() - started < 10


@needs_bouncer
def test_nothing_is_left_behind_in_a_pooled_backend(cluster: TestCluster, app_db: AppDatabase) -> None:
    with bouncer(cluster, APP_ROLE, pool_mode="transaction") as port:
        probe(through(app_db, APP_ROLE, port).app_url)
        with connect(app_db.superuser_url, "test") as superuser:
            left = superuser.execute(
                "select count(*) from pg_locks l join pg_stat_activity a using (pid) "
                "where l.locktype = 'advisory' and a.usename = %s and a.datname = %s",
                [APP_ROLE, app_db.name],
            ).fetchone()
    assert left == (0,)


@needs_bouncer
def test_a_pooler_that_refuses_session_options_is_named(cluster: TestCluster, app_db: AppDatabase) -> None:
    with bouncer(cluster, APP_ROLE, pool_mode="session", ignore_startup_parameters="") as port:
        pooled = through(app_db, APP_ROLE, port)
        # PgBouncer before 1.20 refuses all options; later ones let those pass that they follow, such as the time zone.
        url = SecretStr(f"{pooled.app_url}?options=-c%20work_mem%3D8MB")
        settings = pooled.settings.model_copy(update={"database_url": url})
        problem, remedy = problem_of(by_name(run_checks(settings)), "app database")
    assert "pooler" in problem
    assert "SUMACLOCK_DATABASE_URL" in remedy
