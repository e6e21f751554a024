"""pg_cron's checks that need no server of their own."""

from __future__ import annotations

import uuid
from contextlib import ExitStack

import pytest
from psycopg import sql
from pydantic import SecretStr

from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.db import Connection, connect, with_database
from sumaclock_dagster.doctor import CheckOutcome, run_checks
from sumaclock_dagster.doctor import clock as clock_checks
from sumaclock_dagster.doctor.clock import judge_zone
from sumaclock_dagster.doctor.clock_log import judge_log
from sumaclock_dagster.doctor.context import Context
from sumaclock_dagster.doctor.phrases import two_sentences
from sumaclock_dagster.embedded.configuration import APP_ROLE, OWNER_ROLE
from sumaclock_dagster.model import SumaclockError
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.doctor_results import by_name, problem_of


def test_a_cron_url_of_another_database(app_db: AppDatabase) -> None:
    settings = app_db.settings.model_copy(update={"cron_database_url": SecretStr(app_db.app_url)})
    problem, remedy = problem_of(by_name(run_checks(settings)), "pg_cron extension")
    assert app_db.name in problem
    assert "'postgres'" in problem
    assert "SUMACLOCK_CRON_DATABASE_URL" in remedy
    assert "'postgres'" in remedy


def test_a_cron_url_of_another_role(app_db: AppDatabase) -> None:
    url = app_db.cron_url.replace(APP_ROLE, OWNER_ROLE)
    settings = app_db.settings.model_copy(update={"cron_database_url": SecretStr(url)})
    problem, remedy = problem_of(by_name(run_checks(settings)), "firing role")
    assert OWNER_ROLE in problem
    assert f"role '{APP_ROLE}'" in remedy


@pytest.mark.parametrize(
    ("change", "back", "named"),
    [
        ("alter role {role} nologin", "alter role {role} login", "may not log in"),
        ("revoke connect on database {database} from {role}",
         "grant connect on database {database} to {role}", "may not connect"),
    ],
)  # fmt: skip
def test_a_role_that_could_not_fire(
    app_db: AppDatabase, superuser: Connection, change: str, back: str, named: str
) -> None:
    names = {"role": sql.Identifier(APP_ROLE), "database": sql.Identifier(app_db.name)}
    with Context(app_db.settings, 3600) as context:
        # Such a role reaches this check only through sessions from before, as a pooler has them.
        context.app = connect(app_db.app_url, "test")
        context.cron = connect(app_db.cron_url, "test")
        superuser.execute(sql.SQL(change).format(**names))
        try:
            finding = clock_checks.firing_role(context)
        finally:
            superuser.execute(sql.SQL(back).format(**names))
        assert named in (finding.problem or "")
        assert APP_ROLE in (finding.remedy or "")
        assert clock_checks.firing_role(context).problem is None


def test_a_database_name_too_long_for_clock_jobs(cluster: TestCluster) -> None:
    name = f"t_{uuid.uuid4().hex[:20]}"
    try:
        results = by_name(run_checks(make_app_database(cluster, name).settings))
    finally:
        drop_app_database(cluster, name)
    problem, remedy = problem_of(results, "clock job names")
    assert "22 bytes" in problem
    assert "21" in problem
    assert "rename" in remedy
    assert results["pg_cron version"].outcome is CheckOutcome.SKIPPED


def test_clock_jobs_that_fire_elsewhere(app_db: AppDatabase, superuser: Connection) -> None:
    with ExitStack() as stack:
        clock = stack.enter_context(Clock(app_db.cron_url, app_db.name))
        for _ in range(2):
            clock.schedule(uuid.uuid4(), "0 0 1 1 *")
        assert "2 clock jobs" in by_name(run_checks(app_db.settings))["firing target"].found
        cron = stack.enter_context(connect(with_database(app_db.superuser_url, "postgres"), "test"))
        cron.execute(
            "update cron.job set nodename = 'old-primary.example' "
            "where jobid = (select min(jobid) from cron.job where database = %s)",
            [app_db.name],
        )
        problem, remedy = problem_of(by_name(run_checks(app_db.settings)), "firing target")
    assert "1 of 2 clock jobs fire at old-primary.example" in problem
    assert "cron.job" in remedy


def test_what_the_installed_pg_cron_is(app_db: AppDatabase) -> None:
    results = by_name(run_checks(app_db.settings))
    with Clock(app_db.cron_url, app_db.name) as clock:
        seconds = clock.features().seconds
    assert ("1.4" in results["pg_cron version"].found) != seconds


def test_trying_what_pg_cron_can_do_leaves_no_clock_job(app_db: AppDatabase) -> None:
    run_checks(app_db.settings)
    with Clock(app_db.cron_url, app_db.name) as clock:
        assert clock.listed() == []


def test_only_utc_is_a_time_zone_for_pg_cron() -> None:
    # pg_cron 1.4 has no such setting; tests/test_doctor_server.py sets it where pg_cron has one.
    for zone in ("GMT", "UTC", "Etc/UTC", "gmt"):
        assert judge_zone(zone).problem is None
    finding = judge_zone("Europe/Madrid")
    assert "Europe/Madrid" in (finding.problem or "")
    assert "cron.timezone = 'GMT'" in (finding.remedy or "")


def test_an_error_with_its_remedy_becomes_two_sentences() -> None:
    assert two_sentences(SumaclockError("It is wrong. Do this. Try again."), "x") == (
        "It is wrong.",
        "Do this, then: Try again.",
    )
    assert two_sentences(SumaclockError("It is wrong"), "Do this.") == ("It is wrong.", "Do this.")


@pytest.mark.parametrize(
    ("log_run", "log_statement", "a_minute", "told", "advised"),
    [
        ("on", "off", None, None, ()),
        ("on", "on", 499, None, ()),
        ("off", "off", 500, None, ()),
        ("on", "off", 500, "to cron.job_run_details.", ("cron.log_run = off, where you can do without the reason",)),
        ("on", "on", 9000, "9,000 firings a minute to cron.job_run_details and to the server's log.",
         ("cron.log_run = off, where", "cron.log_statement = off, which loses nothing")),
    ],
)  # fmt: skip
def test_what_a_busy_clock_writes_and_what_one_loses_without(
    log_run: str, log_statement: str, a_minute: float | None, told: str | None, advised: tuple[str, ...]
) -> None:
    finding = judge_log(log_run, log_statement, a_minute)
    assert finding.found.startswith(f"cron.log_run = {log_run}, cron.log_statement = {log_statement}")
    assert ("nothing tells why a firing failed" in finding.found) == (log_run == "off")
    assert finding.warning == (told is not None)
    assert (finding.problem or "").endswith(told or "")
    assert all(words in (finding.remedy or "") for words in advised)


def test_a_busy_clock_is_seen_by_its_log(app_db: AppDatabase, superuser: Connection) -> None:
    quiet = by_name(run_checks(app_db.settings))["clock log"]
    assert quiet.outcome is CheckOutcome.OK
    assert "cron.log_run = on, cron.log_statement = off" in quiet.found
    with connect(app_db.cron_url.replace(APP_ROLE, "postgres"), "test") as cron:
        cron.execute(
            "insert into cron.job_run_details (jobid, username, status, start_time)"
            " select -1, %s, 'succeeded', now() - n * interval '60 ms' from generate_series(1, 1000) as n",
            [APP_ROLE],
        )
        try:
            busy = by_name(run_checks(app_db.settings))["clock log"]
        finally:
            cron.execute("delete from cron.job_run_details where jobid = -1")
    assert busy.outcome is CheckOutcome.WARNING
    assert "firings a minute to cron.job_run_details" in str(busy.problem)
