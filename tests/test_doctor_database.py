"""First boot, migrations, the role's powers and rights: each made wrong for real, and mended by the remedy's words."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sumaclock_dagster.db import Connection, connect, query, with_database
from sumaclock_dagster.doctor import CheckOutcome, CheckResult, run_checks
from sumaclock_dagster.embedded.configuration import APP_ROLE, OWNER_ROLE
from sumaclock_dagster.embedded.creation import run_first_boot
from sumaclock_dagster.queue.workers import register, request_worker
from tests.conftest import (
    AppDatabase,
    TestCluster,
    describe_app_database,
    drop_app_database,
)
from tests.doctor_results import by_name, problem_of

SCHEDULE_IN_DATABASE = "cron.schedule_in_database(text, text, text, text, text, boolean)"
ALTER_JOB = "cron.alter_job(bigint, text, text, text, text, boolean)"


@pytest.fixture
def cron(app_db: AppDatabase) -> Iterator[Connection]:
    """The superuser in the cron database."""
    with connect(with_database(app_db.superuser_url, "postgres"), "test superuser") as conn:
        yield conn


def check(app_db: AppDatabase) -> dict[str, CheckResult]:
    return by_name(run_checks(app_db.settings))


def statements(remedy: str) -> list[str]:
    """What a remedy tells to run."""
    return [part.strip() for text in re.findall(r"`([^`]+;)`", remedy) for part in text.split(";") if part.strip()]


@contextmanager
def changed(conn: Connection, change: str, back: str) -> Iterator[None]:
    """For what outlives the database: roles and the cron database are the whole cluster's."""
    conn.execute(change)
    try:
        yield
    finally:
        conn.execute(back)


def test_a_database_without_schema(cluster: TestCluster, app_db: AppDatabase, superuser: Connection) -> None:
    superuser.execute("drop schema sumaclock cascade")
    results = check(app_db)
    problem, remedy = problem_of(results, "first boot")
    assert "schema sumaclock" in problem
    assert f"-v app_db={app_db.name} -v app_role={APP_ROLE}" in remedy
    for name in ("migrations", "app rights", "pg_cron extension", "pg_cron version", "oldest transaction"):
        assert results[name].outcome is CheckOutcome.SKIPPED
    # pg_cron has to be loaded before first_boot.sql can run, so that is looked at without it.
    assert results["pg_cron loaded"].outcome is CheckOutcome.OK
    run_first_boot(cluster.binaries, cluster.file.superuser_url, {"app_db": app_db.name, "app_role": APP_ROLE})
    assert check(app_db)["first boot"].outcome is CheckOutcome.OK


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("drop function sumaclock.clock_settings()", "clock_settings"),
        ("drop function sumaclock.oldest_transaction()", "oldest_transaction"),
        (f"revoke execute on function sumaclock.clock_settings() from {APP_ROLE}", "clock_settings"),
        (
            "do $$ begin execute format('alter database %I reset sumaclock.app_role', current_database()); end $$",
            "app_role",
        ),
    ],
)
def test_a_first_boot_that_is_not_whole(app_db: AppDatabase, superuser: Connection, change: str, named: str) -> None:
    superuser.execute(change)
    problem, remedy = problem_of(check(app_db), "first boot")
    assert named in problem
    assert "first_boot.sql" in remedy


def test_an_unmigrated_database(cluster: TestCluster) -> None:
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        run_first_boot(cluster.binaries, cluster.file.superuser_url, {"app_db": name})
        results = check(describe_app_database(cluster, name))
        problem, remedy = problem_of(results, "migrations")
        assert "0001_clock_and_queue" in problem
        assert "`sumaclock migrate`" in remedy
        assert results["first boot"].outcome is CheckOutcome.OK
    finally:
        drop_app_database(cluster, name)


def test_a_database_ahead_of_the_code(app_db: AppDatabase, superuser: Connection) -> None:
    superuser.execute(query("record_migration"), {"number": 9999, "name": "9999_from_the_future", "checksum": "0" * 64})
    problem, remedy = problem_of(check(app_db), "migrations")
    assert "9999_from_the_future" in problem
    assert "newer code" in remedy


def test_an_edited_migration(app_db: AppDatabase, superuser: Connection) -> None:
    superuser.execute("update sumaclock.migrations set checksum = 'something else' where number = 1")
    problem, remedy = problem_of(check(app_db), "migrations")
    assert "edited" in problem
    assert "Restore" in remedy


@pytest.mark.parametrize("power", ["superuser", "createdb", "createrole", "replication", "bypassrls"])
def test_an_app_role_with_power_over_the_cluster(app_db: AppDatabase, superuser: Connection, power: str) -> None:
    with changed(superuser, f"alter role {APP_ROLE} {power}", f"alter role {APP_ROLE} no{power}"):
        results = check(app_db)
        problem, remedy = problem_of(results, "app role")
        assert APP_ROLE in problem
        assert f"alter role {APP_ROLE} no{power}" in statements(remedy)
        # Everything is allowed to a superuser, so a comparison of rights would say nothing.
        assert results["app rights"].outcome is CheckOutcome.SKIPPED
        for statement in statements(remedy):
            superuser.execute(statement)
        assert check(app_db)["app role"].outcome is CheckOutcome.OK


@pytest.mark.parametrize("strong", ["other superuser", "pg_execute_server_program", "pg_read_all_data", OWNER_ROLE])
def test_an_app_role_that_is_a_member_of_a_strong_one(app_db: AppDatabase, superuser: Connection, strong: str) -> None:
    name = f"strong_{uuid.uuid4().hex[:8]}" if strong == "other superuser" else strong
    if name != strong:
        superuser.execute(f"create role {name} superuser")
    with changed(superuser, f"grant {name} to {APP_ROLE}", f"revoke {name} from {APP_ROLE}"):
        problem, remedy = problem_of(check(app_db), "app role")
        assert f"member of role {name}" in problem
        assert statements(remedy) == [f"revoke {name} from {APP_ROLE}"]
    if name != strong:
        superuser.execute(f"drop role {name}")
    assert check(app_db)["app role"].outcome is CheckOutcome.OK


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (f"revoke delete on sumaclock.cron_jobs from {APP_ROLE}", "DELETE on sumaclock.cron_jobs"),
        (f"revoke insert, update on sumaclock.cron_runs from {APP_ROLE}", "INSERT, UPDATE on sumaclock.cron_runs"),
        (f"revoke all on sumaclock.workers from {APP_ROLE}", "sumaclock.workers"),
        (f"revoke select on sumaclock.worker_sessions from {APP_ROLE}", "SELECT on sumaclock.worker_sessions"),
        (f"grant truncate on sumaclock.cron_runs to {APP_ROLE}", "TRUNCATE on sumaclock.cron_runs"),
        (f"grant insert on sumaclock.migrations to {APP_ROLE}", "INSERT on sumaclock.migrations"),
        ("grant trigger on sumaclock.cron_jobs to public", "TRIGGER on sumaclock.cron_jobs"),
        (f"grant create on schema sumaclock to {APP_ROLE}", "CREATE on schema sumaclock"),
        (
            "do $$ begin execute format('grant create on database %I to public', current_database()); end $$",
            "CREATE on the database",
        ),
        (
            f"grant create on schema sumaclock to {APP_ROLE}; alter table sumaclock.workers owner to {APP_ROLE}; "
            f"revoke create on schema sumaclock from {APP_ROLE}",
            "ownership of sumaclock.workers",
        ),
        (f"alter schema sumaclock owner to {APP_ROLE}", "ownership of schema sumaclock"),
    ],
)
def test_rights_in_the_app_database(app_db: AppDatabase, superuser: Connection, change: str, named: str) -> None:
    superuser.execute(change)
    problem, remedy = problem_of(check(app_db), "app rights")
    assert named in problem
    assert APP_ROLE in problem
    for statement in statements(remedy):
        superuser.execute(statement)
    mended = check(app_db)["app rights"]
    assert mended.outcome is CheckOutcome.OK, mended


def test_the_right_that_postgresql_17_added(app_db: AppDatabase, superuser: Connection) -> None:
    if superuser.info.server_version < 170_000:
        pytest.skip("MAINTAIN exists from PostgreSQL 17 on")
    superuser.execute(f"grant maintain on sumaclock.cron_runs to {APP_ROLE}")
    problem, _ = problem_of(check(app_db), "app rights")
    assert "MAINTAIN on sumaclock.cron_runs" in problem


def test_no_usage_on_the_schema(app_db: AppDatabase, superuser: Connection) -> None:
    superuser.execute(f"revoke usage on schema sumaclock from {APP_ROLE}")
    results = check(app_db)
    problem_of(results, "first boot")
    assert all("Traceback" not in (result.problem or "") for result in results.values())


@pytest.mark.parametrize(
    ("change", "back", "named"),
    [
        (f"revoke execute on function {SCHEDULE_IN_DATABASE} from {APP_ROLE}",
         f"grant execute on function {SCHEDULE_IN_DATABASE} to {APP_ROLE}", "schedule_in_database"),
        (f"revoke usage on schema cron from {APP_ROLE}",
         f"grant usage on schema cron to {APP_ROLE}", "USAGE on schema cron"),
        (f"grant execute on function {ALTER_JOB} to {APP_ROLE}",
         f"revoke execute on function {ALTER_JOB} from {APP_ROLE}", "cron.alter_job"),
        ("grant execute on function cron.schedule(text, text) to public",
         "revoke execute on function cron.schedule(text, text) from public", "cron.schedule(text,text)"),
        (f"grant update on cron.job to {APP_ROLE}", f"revoke update on cron.job from {APP_ROLE}", "UPDATE on cron.job"),
        (f"grant create on schema cron to {APP_ROLE}",
         f"revoke create on schema cron from {APP_ROLE}", "CREATE on schema cron"),
    ],
)  # fmt: skip
def test_rights_in_the_cron_database(app_db: AppDatabase, cron: Connection, change: str, back: str, named: str) -> None:
    with changed(cron, change, back):
        results = check(app_db)
        problem, remedy = problem_of(results, "cron rights")
        assert named in problem
        assert "'postgres'" in problem
        assert results["pg_cron version"].outcome is CheckOutcome.SKIPPED
        for statement in statements(remedy):
            cron.execute(statement)
        mended = check(app_db)["cron rights"]
        assert mended.outcome is CheckOutcome.OK, mended


def test_two_code_locations_with_workers_on_one_database(app_db: AppDatabase, app: Connection) -> None:
    with connect(app_db.app_url, "test worker") as another:
        for session, location in ((app, "reports"), (another, "etl")):
            register(
                session,
                request_worker(session, "v", location),
                code_version="v",
                dagster_run_id=None,
                host="here",
                pid=1,
                life_seconds=60,
            )
        problem, remedy = problem_of(check(app_db), "code location")
    assert "etl and reports keep workers in one app database" in problem, problem
    assert "an app database of its own" in remedy
    assert check(app_db)["code location"].outcome is CheckOutcome.OK
