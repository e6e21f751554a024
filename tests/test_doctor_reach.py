"""Each way in which a database cannot be reached, for real: its own sentence and its own remedy, and no secret."""

from __future__ import annotations

import json
import secrets
import socket
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pytest
from psycopg import sql
from pydantic import SecretStr

from sumaclock_dagster.db import Connection, with_database
from sumaclock_dagster.doctor import CheckOutcome, run_checks
from sumaclock_dagster.doctor.reach import judge_version
from sumaclock_dagster.embedded.configuration import usable_port
from sumaclock_dagster.settings import Settings
from tests.conftest import NEIGHBOUR, AppDatabase, TestCluster
from tests.doctor_results import by_name, problem_of, sentences, shared_app_database

APP = "SUMACLOCK_DATABASE_URL"


@dataclass(frozen=True)
class Visitor:
    """A role that logs in over TCP with a password of its own. `url`: of the app database, as that role."""

    role: str
    password: str
    host: str
    database: str

    @property
    def url(self) -> str:
        return f"postgresql://{self.role}:{self.password}@{self.host}/{self.database}"


@pytest.fixture(scope="module")
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    """One for all tests here: they only look at it."""
    with shared_app_database(cluster) as app_db:
        yield app_db


@pytest.fixture
def visitor(cluster: TestCluster, app_db: AppDatabase, superuser: Connection) -> Iterator[Visitor]:
    role, password = f"v_{uuid.uuid4().hex[:8]}", secrets.token_hex(12)
    name = sql.Identifier(role)
    superuser.execute(sql.SQL("create role {} login password {}").format(name, password))
    superuser.execute(sql.SQL("grant connect on database {} to {}").format(sql.Identifier(app_db.name), name))
    yield Visitor(role, password, f"127.0.0.1:{cluster.file.port}", app_db.name)
    superuser.execute(sql.SQL("drop owned by {}").format(name))
    superuser.execute(sql.SQL("drop role {}").format(name))


def with_app_url(app_db: AppDatabase, url: str) -> Settings:
    return app_db.settings.model_copy(update={"database_url": SecretStr(url)})


def refused(app_db: AppDatabase, url: str) -> tuple[str, str]:
    return problem_of(by_name(run_checks(with_app_url(app_db, url))), "app database")


def test_a_healthy_database_passes_every_check(app_db: AppDatabase) -> None:
    results = run_checks(app_db.settings)
    assert {result.name: result.outcome for result in results if result.outcome is not CheckOutcome.OK} == {}
    assert all(result.problem is None and result.remedy is None for result in results)


def test_what_rests_on_a_failed_check_is_skipped_and_says_so(app_db: AppDatabase) -> None:
    results = by_name(run_checks(with_app_url(app_db, f"postgresql://a@127.0.0.1:{usable_port(None)}/b")))
    assert results["app database"].outcome is CheckOutcome.FAILED
    for name in ("PostgreSQL version", "sessions", "migrations", "app rights", "pg_cron version", "firing role"):
        assert results[name].outcome is CheckOutcome.SKIPPED
        assert "not looked at" in results[name].found
    assert results["cron database"].outcome is CheckOutcome.OK
    assert results["Dagster database"].outcome is CheckOutcome.OK


def test_nothing_listens_there(app_db: AppDatabase) -> None:
    port = usable_port(None)
    problem, remedy = refused(app_db, f"postgresql://a@127.0.0.1:{port}/b")
    assert f"127.0.0.1:{port}" in problem
    assert "Start PostgreSQL" in remedy
    assert APP in remedy


def test_no_socket_there(app_db: AppDatabase) -> None:
    problem, remedy = refused(app_db, "postgresql://a@/b?host=/nonexistent")
    assert "/nonexistent" in problem
    assert "Start PostgreSQL" in remedy


def test_unknown_host(app_db: AppDatabase) -> None:
    problem, remedy = refused(app_db, "postgresql://a@no-such-host.invalid/b")
    assert "no-such-host.invalid" in problem
    assert "host name" in remedy


def test_a_server_that_says_nothing(app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sumaclock_dagster.doctor.reach.CONNECT_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        problem, remedy = refused(app_db, f"postgresql://a@127.0.0.1:{silent.getsockname()[1]}/b?sslmode=disable")
    assert "in time" in problem
    assert "firewall" in remedy


def test_wrong_password(app_db: AppDatabase, visitor: Visitor) -> None:
    problem, remedy = refused(app_db, visitor.url.replace(visitor.password, "guessed-wrong"))
    assert f"role '{visitor.role}'" in problem
    assert "does not accept the password" in problem
    assert "Correct role and password" in remedy


def test_no_password(app_db: AppDatabase, visitor: Visitor) -> None:
    problem, remedy = refused(app_db, visitor.url.replace(f":{visitor.password}", ""))
    assert "wants a password" in problem
    assert ".pgpass" in remedy


def test_unknown_database(app_db: AppDatabase, visitor: Visitor) -> None:
    problem, remedy = refused(app_db, with_database(visitor.url, "nowhere_at_all"))
    assert "no database 'nowhere_at_all'" in problem
    assert "first_boot.sql" in remedy


def test_unknown_role(app_db: AppDatabase, visitor: Visitor) -> None:
    # Over TCP a server does not tell an unknown role from a wrong password.
    problem, _ = refused(app_db, visitor.url.replace(visitor.role, "nobody_here"))
    assert "role 'nobody_here'" in problem


def test_unknown_role_over_the_socket(app_db: AppDatabase) -> None:
    problem, remedy = refused(app_db, app_db.app_url.replace("sumaclock_app", NEIGHBOUR))
    assert f"no role '{NEIGHBOUR}'" in problem
    assert "first_boot.sql" in remedy


def test_role_without_login(app_db: AppDatabase, visitor: Visitor, superuser: Connection) -> None:
    superuser.execute(sql.SQL("alter role {} nologin").format(sql.Identifier(visitor.role)))
    problem, remedy = refused(app_db, visitor.url)
    assert "may not log in" in problem
    assert f'`alter role "{visitor.role}" login;`' in remedy


def test_role_without_connect(app_db: AppDatabase, visitor: Visitor, superuser: Connection) -> None:
    superuser.execute(
        sql.SQL("revoke connect on database {} from {}").format(
            sql.Identifier(app_db.name), sql.Identifier(visitor.role)
        )
    )
    problem, remedy = refused(app_db, visitor.url)
    assert "may not connect" in problem
    assert f'`grant connect on database "{app_db.name}" to "{visitor.role}";`' in remedy


def test_no_connection_left(app_db: AppDatabase, visitor: Visitor, superuser: Connection) -> None:
    superuser.execute(sql.SQL("alter role {} connection limit 0").format(sql.Identifier(visitor.role)))
    problem, remedy = refused(app_db, visitor.url)
    assert "no connection left" in problem
    assert "max_connections" in remedy


def test_tls_that_the_server_does_not_have(app_db: AppDatabase, visitor: Visitor) -> None:
    problem, remedy = refused(app_db, f"{visitor.url}?sslmode=require")
    assert "has no TLS" in problem
    assert "ssl = on" in remedy
    assert "sslmode" in remedy


def test_no_password_is_ever_shown(app_db: AppDatabase, visitor: Visitor) -> None:
    for database in (visitor.database, "nowhere_at_all"):
        settings = app_db.settings.model_copy(
            update={
                "database_url": SecretStr(with_database(visitor.url, database)),
                "cron_database_url": SecretStr(with_database(visitor.url, "postgres")),
                "dagster_database_url": SecretStr(
                    f"postgresql+psycopg2://{visitor.role}:{visitor.password}@{visitor.host}/{database}"
                ),
            }
        )
        assert visitor.password not in json.dumps([asdict(result) for result in run_checks(settings)])


def test_dagster_s_database_cannot_be_reached(app_db: AppDatabase, visitor: Visitor) -> None:
    url = f"postgresql+psycopg2://{visitor.role}:guessed-wrong@{visitor.host}/{visitor.database}"
    settings = app_db.settings.model_copy(update={"dagster_database_url": SecretStr(url)})
    problem, remedy = problem_of(by_name(run_checks(settings)), "Dagster database")
    assert f"role '{visitor.role}'" in problem
    assert "SUMACLOCK_DAGSTER_DATABASE_URL" in remedy


def test_dagster_s_role_must_be_able_to_make_its_tables(app_db: AppDatabase, visitor: Visitor) -> None:
    url = f"postgresql+psycopg2://{visitor.role}:{visitor.password}@{visitor.host}/{visitor.database}"
    settings = app_db.settings.model_copy(update={"dagster_database_url": SecretStr(url)})
    problem, remedy = problem_of(by_name(run_checks(settings)), "Dagster database")
    assert "may not create Dagster's tables" in problem
    assert f'`alter database "{app_db.name}" owner to "{visitor.role}";`' in remedy


def test_postgresql_before_15_is_refused_with_the_reason() -> None:
    # No such server is at hand; the number is what libpq gives for one.
    old = judge_version(140_019)
    assert "14.19" in (old.problem or "")
    assert "schema public" in (old.problem or "")
    assert "15" in (old.remedy or "")
    assert judge_version(150_000).problem is None
    assert judge_version(170_006).problem is None


def test_an_old_transaction_is_a_warning_and_not_a_failure(app_db: AppDatabase, superuser: Connection) -> None:
    with superuser.transaction():
        superuser.execute("set transaction isolation level repeatable read")
        superuser.execute("select")
        pid = superuser.info.backend_pid
        results = run_checks(app_db.settings, old_transaction_seconds=0)
        young = by_name(run_checks(app_db.settings))["oldest transaction"]
    oldest = by_name(results)["oldest transaction"]
    assert oldest.outcome is CheckOutcome.WARNING
    problem, remedy = sentences(oldest)
    assert f"process {pid}" in problem
    assert "vacuum" in problem
    assert "idle_in_transaction_session_timeout" in remedy
    assert not any(result.outcome is CheckOutcome.FAILED for result in results)
    assert young.outcome is CheckOutcome.OK
