"""Rule 11, least privilege: what the app role must not do is tried against a real server, and so is what it must."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from sumaclock_dagster.db import Connection, connect, with_database
from tests.conftest import NEIGHBOUR, AppDatabase, TestCluster, drop_app_database, make_app_database

DENIED = psycopg.errors.InsufficientPrivilege
ARGUMENTS = "'{name}:cron:x', '5 4 1 1 *', 'select 1', '{name}'"

FORBIDDEN_IN_APP = {
    "make a role": "create role intruder superuser",
    "become superuser": "alter role sumaclock_app superuser",
    "become the owner": "set role sumaclock_owner",
    "become the superuser": "set session authorization postgres",
    "make a database": "create database intruder",
    "change the server": "alter system set log_statement = 'all'",
    "change the app role's name": "alter database {name} set sumaclock.app_role = 'postgres'",
    "make a table": "create table sumaclock.mine (id int)",
    "make a table in public": "create table public.mine (id int)",
    "make a function": "create function sumaclock.mine() returns int language sql as 'select 1'",
    "make a schema": "create schema mine",
    "make an extension": "create extension dblink",
    "change a table": "alter table sumaclock.cron_runs add column mine int",
    "make a trigger": "create trigger mine after insert on sumaclock.cron_runs execute function pg_notify()",
    "drop a table": "drop table sumaclock.cron_runs",
    "truncate a table": "truncate sumaclock.cron_jobs cascade",
    "drop the settings function": "drop function sumaclock.clock_settings()",
    "write the ledger": "insert into sumaclock.migrations (number, name, checksum) values (99, 'x', 'x')",
    "edit the ledger": "update sumaclock.migrations set checksum = 'x'",
    "empty the ledger": "delete from sumaclock.migrations",
    "run a program": "copy (select 1) to program 'cat'",
    "read a file": "select pg_read_file('/etc/passwd')",
    "write a file": "copy (select 1) to '/tmp/sumaclock-intruder'",
    "load a library": "load '/tmp/intruder.so'",
    "see passwords": "select rolpassword from pg_authid",
    "end others' sessions": "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'postgres'",
    "see clock settings otherwise": "show cron.host",
}

FORBIDDEN_IN_CRON = {
    "schedule into the cron database": "select cron.schedule('5 4 1 1 *', 'select 1')",
    "schedule by name into the cron database": "select cron.schedule('mine', '5 4 1 1 *', 'select 1')",
    "alter its own clock job": "select cron.alter_job(jobid, schedule => '* * * * *') from cron.job",
    "alter any clock job": "select cron.alter_job(1, active => false)",
    "schedule as the superuser": f"select cron.schedule_in_database({ARGUMENTS}, 'postgres')",
    "schedule as the neighbour": f"select cron.schedule_in_database({ARGUMENTS}, '{NEIGHBOUR}')",
    "write clock jobs": "insert into cron.job (schedule, command) values ('* * * * *', 'select 1')",
    "change clock jobs": "update cron.job set username = 'postgres'",
    "delete clock jobs": "delete from cron.job",
    "lock clock jobs": "begin; lock cron.job in exclusive mode; commit",
    "forge details": "insert into cron.job_run_details (jobid) values (1)",
    "change details": "update cron.job_run_details set status = 'succeeded'",
    "take a job id": "select nextval('cron.jobid_seq')",
    "make a table": "create table cron.mine (id int)",
    "drop pg_cron": "drop extension pg_cron",
}

ALLOWED_IN_APP = {
    "write jobs": "insert into sumaclock.cron_jobs (kind, organization_id, user_id, schedule) "
    "values ('demo', 'o', 'u', '* * * * *')",
    "read jobs": "select * from sumaclock.cron_jobs",
    "change runs": "update sumaclock.cron_runs set error = error",
    "delete runs": "delete from sumaclock.cron_runs",
    "write slots": "insert into sumaclock.clock_slots (id, schedule) values (gen_random_uuid(), '5 4 3 2 *')",
    "write workers": "insert into sumaclock.workers (code_version) values ('1')",
    "read the ledger": "select * from sumaclock.migrations",
    "notify": "notify cron_runs",
    "listen": "listen cron_runs",
    "take advisory locks": "select pg_advisory_lock(1, 2)",
    "see clock settings": "select * from sumaclock.clock_settings()",
}

ALLOWED_IN_CRON = {
    "schedule and unschedule by name": f"select cron.schedule_in_database({ARGUMENTS}); "
    "select cron.unschedule('{name}:cron:x')",
    "schedule and unschedule by id": f"select cron.unschedule(cron.schedule_in_database({ARGUMENTS}))",
    "read its own clock jobs": "select * from cron.job",
    "read its own details": "select * from cron.job_run_details",
    "delete its own details": "delete from cron.job_run_details",
}


@pytest.fixture(scope="module")
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    """One database for all: what these tests try leaves nothing behind that another would trip over."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        yield make_app_database(cluster, name)
    finally:
        drop_app_database(cluster, name)


@pytest.fixture
def cron(app_db: AppDatabase) -> Iterator[Connection]:
    """The app role in the cron database, with one clock job of its own there."""
    with connect(app_db.cron_url, "test cron") as conn:
        conn.execute(f"select cron.schedule_in_database({ARGUMENTS.format(name=app_db.name)})".replace(":x", ":own"))
        yield conn


@pytest.fixture
def neighbour_job(app_db: AppDatabase) -> Iterator[int]:
    """A clock job of another role, and a detail of a run of it; its jobid."""
    with connect(with_database(app_db.superuser_url, "postgres"), "test neighbour") as conn:
        # The role stays: one row of cron.job whose role is gone would stop every job of the cluster.
        if not conn.execute("select 1 from pg_roles where rolname = %s", [NEIGHBOUR]).fetchall():
            conn.execute(sql.SQL("create role {}").format(sql.Identifier(NEIGHBOUR)))
        row = conn.execute(
            "insert into cron.job (schedule, command, database, username, jobname, nodeport)"
            " values ('5 4 1 1 *', 'select 1', %s, %s, 'nightly', 1) returning jobid",
            [app_db.name, NEIGHBOUR],
        ).fetchall()[0]
        conn.execute(
            "insert into cron.job_run_details (jobid, username, database) values (%s, %s, %s)",
            [row[0], NEIGHBOUR, app_db.name],
        )
        yield row[0]
        conn.execute("delete from cron.job_run_details where jobid = %s", [row[0]])
        conn.execute("delete from cron.job where jobid = %s", [row[0]])


@pytest.mark.parametrize("what", FORBIDDEN_IN_APP)
def test_rule_11_the_app_role_must_not(what: str, app_db: AppDatabase, app: Connection) -> None:
    with pytest.raises(DENIED):
        app.execute(FORBIDDEN_IN_APP[what].format(name=app_db.name))


@pytest.mark.parametrize("what", FORBIDDEN_IN_CRON)
def test_rule_11_in_the_cron_database_the_app_role_must_not(
    what: str, app_db: AppDatabase, cron: Connection, neighbour_job: int
) -> None:
    before = _all_clock_jobs(app_db)
    # pg_cron refuses another user's name by a bare elog, which has no class of its own.
    refusal = psycopg.errors.InternalError_ if what.startswith("schedule as") else DENIED
    with pytest.raises(refusal, match=r"denied|must be (superuser|owner)"):
        cron.execute(FORBIDDEN_IN_CRON[what].format(name=app_db.name))
    assert _all_clock_jobs(app_db) == before


@pytest.mark.parametrize("what", ALLOWED_IN_APP)
def test_rule_11_the_app_role_may(what: str, app_db: AppDatabase, app: Connection) -> None:
    assert app.execute(ALLOWED_IN_APP[what].format(name=app_db.name)).statusmessage


@pytest.mark.parametrize("what", ALLOWED_IN_CRON)
def test_rule_11_in_the_cron_database_the_app_role_may(what: str, app_db: AppDatabase, cron: Connection) -> None:
    assert cron.execute(ALLOWED_IN_CRON[what].format(name=app_db.name)).statusmessage


def test_rule_11_the_app_role_neither_sees_nor_ends_the_clock_jobs_of_others(
    app_db: AppDatabase, cron: Connection, neighbour_job: int
) -> None:
    before = _all_clock_jobs(app_db)
    seen = cron.execute("select distinct username from cron.job").fetchall()
    details = cron.execute("select count(*) from cron.job_run_details where username <> current_user").fetchall()
    with pytest.raises(psycopg.Error):
        cron.execute("select cron.unschedule(%s::bigint)", [neighbour_job])
    with pytest.raises(psycopg.Error):
        cron.execute("select cron.unschedule('nightly')")
    deleted = cron.execute("delete from cron.job_run_details where jobid = %s", [neighbour_job]).rowcount
    assert (seen, details, deleted) == ([("sumaclock_app",)], [(0,)], 0)
    assert _all_clock_jobs(app_db) == before
    assert neighbour_job in {job[0] for job in before}


def test_rule_11_the_app_role_may_execute_exactly_these_functions_of_pg_cron(cron: Connection) -> None:
    rows = cron.execute(
        "select distinct proname::text from pg_proc where pronamespace = 'cron'::regnamespace"
        " and prorettype <> 'trigger'::regtype and has_function_privilege(oid, 'execute') order by 1"
    ).fetchall()
    assert [row[0] for row in rows] == ["schedule_in_database", "unschedule"]


def test_rule_11_no_role_of_ours_is_powerful(superuser: Connection) -> None:
    rows = superuser.execute(
        "select rolname from pg_roles where rolname like 'sumaclock%' and (rolsuper or rolcreatedb or rolcreaterole"
        " or rolreplication or rolbypassrls or exists (select from pg_auth_members where member = pg_roles.oid))"
    ).fetchall()
    assert rows == []


def test_rule_11_outsiders_cannot_enter_the_app_database(superuser: Connection, app_db: AppDatabase) -> None:
    rows = superuser.execute(
        "select acl.grantee::regrole::text, string_agg(acl.privilege_type, ',')"
        " from pg_database, aclexplode(datacl) as acl"
        " where datname = current_database() and acl.grantee <> datdba group by 1 order by 1"
    ).fetchall()
    assert rows == [("sumaclock_app", "CONNECT"), ("sumaclock_owner", "CONNECT")]


def test_clock_settings_are_those_of_pg_cron_only(app: Connection, superuser: Connection) -> None:
    shown = dict(app.execute("select name, value from sumaclock.clock_settings()").fetchall())
    real = dict(superuser.execute("select name, setting from pg_settings where name like 'cron.%%'", []).fetchall())
    assert shown == real
    assert shown["cron.database_name"] == "postgres"


def _all_clock_jobs(app_db: AppDatabase) -> list[tuple[object, ...]]:
    with connect(with_database(app_db.superuser_url, "postgres"), "test look") as conn:
        return conn.execute("select * from cron.job where database = %s order by jobid", [app_db.name]).fetchall()
