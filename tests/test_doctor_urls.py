"""URLs as people write them: wrong ones are named, and nothing of a password is ever shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from sumaclock_dagster.db import connect, with_database
from sumaclock_dagster.doctor import CheckOutcome, run_checks
from sumaclock_dagster.doctor.phrases import address, target
from sumaclock_dagster.doctor.reach import open_or_refuse
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.settings import Settings
from tests.conftest import AppDatabase, TestCluster
from tests.doctor_results import by_name, problem_of, shared_app_database

APP = "SUMACLOCK_DATABASE_URL"


@pytest.fixture(scope="module")
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    """One for all tests here: they only look at it."""
    with shared_app_database(cluster) as app_db:
        yield app_db


def with_app_url(app_db: AppDatabase, url: str) -> Settings:
    return app_db.settings.model_copy(update={"database_url": SecretStr(url)})


def refused(app_db: AppDatabase, url: str) -> tuple[str, str]:
    return problem_of(by_name(run_checks(with_app_url(app_db, url))), "app database")


@pytest.mark.parametrize("url", ["", "  ", "mysql://a:hunter2@h/d", "postgresql+psycopg2://a:hunter2@h/d", "hunter2"])
def test_not_a_postgresql_url(app_db: AppDatabase, url: str) -> None:
    problem, remedy = refused(app_db, url)
    assert APP in problem
    assert "postgresql://" in remedy
    assert "hunter2" not in problem + remedy


@pytest.mark.parametrize("password", ["hunt@er2", "hunt/er2", "hunt:er2/x", "%zzhunter2", "hunt#er2@"])
def test_an_unescaped_sign_in_the_password_shows_no_part_of_it(app_db: AppDatabase, password: str) -> None:
    results = run_checks(with_app_url(app_db, f"postgresql://somebody:{password}@127.0.0.1:1/app"))
    _, remedy = problem_of(by_name(results), "app database")
    assert "%" in remedy
    shown = json.dumps([asdict(result) for result in results])
    assert "er2" not in shown


def test_a_server_s_own_words_are_shown_where_we_know_none() -> None:
    # Refused by libpq itself; a server that speaks another language takes the same way.
    with pytest.raises(SumaclockError, match="invalid sslmode value") as caught:
        open_or_refuse("postgresql://a:hunter2@127.0.0.1/b?sslmode=nonsense", APP)
    assert "hunter2" not in str(caught.value)
    assert APP in str(caught.value)


def test_nothing_set_and_no_private_cluster(app_db: AppDatabase, tmp_path: object) -> None:
    nothing = Settings(home=tmp_path, database_url=None, cron_database_url=None, dagster_database_url=None)
    results = by_name(run_checks(nothing))
    for name, variable in (("app database", APP), ("Dagster URL", "SUMACLOCK_DAGSTER_DATABASE_URL")):
        problem, remedy = problem_of(results, name)
        assert variable in problem
        assert "bin/up" in remedy


def test_the_cron_database_has_a_variable_of_its_own(app_db: AppDatabase) -> None:
    settings = app_db.settings.model_copy(
        update={"cron_database_url": SecretStr(with_database(app_db.app_url, "no_cron_here"))}
    )
    problem, remedy = problem_of(by_name(run_checks(settings)), "cron database")
    assert "no_cron_here" in problem
    assert "SUMACLOCK_CRON_DATABASE_URL" in remedy


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "mysql"])
def test_dagster_s_url_needs_its_driver_s_name(app_db: AppDatabase, scheme: str) -> None:
    url = app_db.settings.dagster_url.replace("postgresql+psycopg2", scheme)
    settings = app_db.settings.model_copy(update={"dagster_database_url": SecretStr(url)})
    results = by_name(run_checks(settings))
    problem, remedy = problem_of(results, "Dagster URL")
    assert f"{scheme}://" in problem
    assert "postgresql+psycopg2://" in remedy
    assert results["Dagster database"].outcome is CheckOutcome.SKIPPED


@pytest.mark.parametrize("url", ["", "hunter2", "postgresql+psycopg2://a:hunt@er2@h/d"])
def test_dagster_s_url_that_is_none(app_db: AppDatabase, url: str) -> None:
    settings = app_db.settings.model_copy(update={"dagster_database_url": SecretStr(url)})
    problem, remedy = problem_of(by_name(run_checks(settings)), "Dagster URL")
    assert "SUMACLOCK_DAGSTER_DATABASE_URL" in problem
    assert "er2" not in problem + remedy


def test_conninfo_form_works_as_well_as_a_url(app_db: AppDatabase) -> None:
    with connect(make_conninfo(app_db.app_url), "test") as conn:
        assert conn.info.dbname == app_db.name
    assert by_name(run_checks(with_app_url(app_db, make_conninfo(app_db.app_url))))["sessions"].outcome is (
        CheckOutcome.OK
    )


def test_what_a_url_leaves_out_comes_from_libpq_s_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "elsewhere.example")
    monkeypatch.setenv("PGPORT", "6000")
    monkeypatch.setenv("PGUSER", "someone")
    assert target("postgresql://") == {
        "host": "elsewhere.example",
        "port": "6000",
        "user": "someone",
        "dbname": "someone",
    }
    assert address("postgresql://other@127.0.0.1/app") == "127.0.0.1:6000"
