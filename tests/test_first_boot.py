"""sql/first_boot.sql on a cluster of our own and beside neighbours: again, and without taking anything from them."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from sumaclock_dagster.db import Connection, connect, with_database
from sumaclock_dagster.embedded.creation import run_first_boot
from sumaclock_dagster.migrate import load_migrations, migrate, sql_file
from sumaclock_dagster.model import SumaclockError
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database

ACLS = """
select 'function ' || oid::regprocedure::text, coalesce(proacl, acldefault('f', proowner))::text
from pg_proc where pronamespace in ('cron'::regnamespace)
union all select 'schema cron', nspacl::text from pg_namespace where nspname = 'cron'
union all select relname, relacl::text from pg_class where relnamespace = 'cron'::regnamespace
union all select datname, datacl::text from pg_database
union all select rolname, to_jsonb(pg_roles)::text from pg_roles
order by 1, 2
"""


@pytest.fixture
def admin(cluster: TestCluster) -> Iterator[Connection]:
    """The superuser in the cron database."""
    with connect(cluster.file.superuser_url, "test admin") as conn:
        yield conn


@pytest.fixture
def names(cluster: TestCluster, admin: Connection) -> Iterator[str]:
    """A prefix for roles and databases of one test; they are dropped at the end."""
    prefix = f"n{uuid.uuid4().hex[:8]}"
    yield prefix
    for (database,) in admin.execute(
        "select datname from pg_database where datname like %s", [f"{prefix}%"]
    ).fetchall():
        drop_app_database(cluster, database)
    for (role,) in admin.execute("select rolname from pg_roles where rolname like %s", [f"{prefix}%"]).fetchall():
        admin.execute(f'drop owned by "{role}"')
        admin.execute(f'drop role "{role}"')


@pytest.fixture
def open_pg_cron(admin: Connection) -> Iterator[None]:
    """pg_cron's grants as its installation leaves them, as on a cluster that never saw us; put back at the end."""
    admin.execute("grant execute on function cron.schedule(text, text) to public")
    admin.execute("grant execute on function cron.schedule(text, text, text) to public")
    yield
    admin.execute("revoke execute on function cron.schedule(text, text) from public")
    admin.execute("revoke execute on function cron.schedule(text, text, text) from public")


def test_a_second_first_boot_changes_nothing(cluster: TestCluster, app_db: AppDatabase, admin: Connection) -> None:
    before = admin.execute(ACLS).fetchall()
    run_first_boot(cluster.binaries, cluster.file.superuser_url, {"app_db": app_db.name})
    assert admin.execute(ACLS).fetchall() == before
    with connect(app_db.app_url, "test") as conn:
        assert conn.execute("select count(*) from sumaclock.cron_jobs").fetchall() == [(0,)]


def test_first_boot_says_nothing_when_all_is_well(cluster: TestCluster, app_db: AppDatabase) -> None:
    assert _psql_output(cluster, app_db.name) == ""


def test_names_of_any_kind_work(cluster: TestCluster, admin: Connection, names: str) -> None:
    variables = {
        "app_db": f'{names} it\'s \\ "ours"=%s',
        "app_role": f'{names} app\'s "role"',
        "owner_role": f"{names} Owner",
        "dagster_role": f"{names}-dagster",
        "dagster_db": f"{names}-dägster",
    }
    try:
        for _ in range(2):
            run_first_boot(cluster.binaries, cluster.file.superuser_url, variables)
        with connect(with_database(cluster.file.superuser_url, variables["app_db"]), "test") as conn:
            conn.execute(f'set role "{variables["owner_role"]}"')
            assert migrate(conn, load_migrations())
            conn.execute("reset role")
            conn.execute("select set_config('role', %s, false)", [variables["app_role"]])
            assert conn.execute("select count(*) from sumaclock.cron_runs").fetchall() == [(0,)]
    finally:
        _drop(admin, variables)


def test_without_dagster_database_none_is_made(cluster: TestCluster, admin: Connection, names: str) -> None:
    variables = {"app_db": names, "dagster_db": "", "dagster_role": f"{names}_dagster"}
    run_first_boot(cluster.binaries, cluster.file.superuser_url, variables)
    rows = admin.execute("select datname from pg_database where datname like %s", [f"{names}%"]).fetchall()
    assert rows == [(names,)]


def test_an_app_database_that_was_there_stays_open_to_those_who_used_it(
    cluster: TestCluster, admin: Connection, names: str
) -> None:
    admin.execute(f'create database "{names}"')
    run_first_boot(cluster.binaries, cluster.file.superuser_url, {"app_db": names})
    rows = admin.execute(
        "select acl.privilege_type from pg_database, aclexplode(datacl) as acl where datname = %s and grantee = 0",
        [names],
    ).fetchall()
    assert ("CONNECT",) in rows


def test_neighbours_keep_what_they_have(
    cluster: TestCluster, admin: Connection, names: str, open_pg_cron: None
) -> None:
    direct, group, member, stranger = (f"{names}_{role}" for role in ("direct", "group", "member", "stranger"))
    for role in (direct, group, member, stranger):
        admin.execute(f"create role {role}")
    admin.execute(f"grant {group} to {member}")
    admin.execute(f"grant usage on schema cron to {direct}, {group}")
    may = {role: _schedules(cluster, role) for role in (direct, group, member, stranger)}
    run_first_boot(cluster.binaries, cluster.file.superuser_url, {"app_db": names})
    assert may == {direct: True, group: True, member: True, stranger: False}
    assert {role: _schedules(cluster, role) for role in may} == may
    assert not _schedules(cluster, "sumaclock_app")


def test_the_app_role_of_another_deployment_is_not_given_more(
    cluster: TestCluster, admin: Connection, names: str, open_pg_cron: None
) -> None:
    other = {
        "app_db": names,
        "app_role": f"{names}_app",
        "owner_role": f"{names}_owner",
        "dagster_role": f"{names}_dagster",
        "dagster_db": "",
    }
    run_first_boot(cluster.binaries, cluster.file.superuser_url, other)
    assert not _schedules(cluster, f"{names}_app")
    assert not _schedules(cluster, "sumaclock_app")


def test_a_schema_open_to_public_is_left_alone_with_a_warning(
    cluster: TestCluster, admin: Connection, names: str, open_pg_cron: None
) -> None:
    admin.execute(f"create role {names}_stranger")
    admin.execute("grant usage on schema cron to public")
    try:
        assert "PUBLIC has USAGE on schema cron" in _psql_output(cluster, names)
        assert _schedules(cluster, f"{names}_stranger")
    finally:
        admin.execute("revoke usage on schema cron from public")


@pytest.mark.parametrize("power", ["superuser", "createdb", "createrole", "replication", "bypassrls"])
def test_a_powerful_app_role_is_refused(cluster: TestCluster, admin: Connection, names: str, power: str) -> None:
    admin.execute(f"create role {names}_app {power}")
    with pytest.raises(SumaclockError, match="too powerful"):
        run_first_boot(cluster.binaries, cluster.file.superuser_url, {"app_db": names, "app_role": f"{names}_app"})
    assert admin.execute("select 1 from pg_database where datname = %s", [names]).fetchall() == []


@pytest.mark.parametrize("group", ["postgres", "sumaclock_owner", "pg_execute_server_program"])
def test_a_member_of_a_powerful_role_is_refused(
    cluster: TestCluster, admin: Connection, names: str, group: str
) -> None:
    admin.execute(f"create role {names}_app")
    admin.execute(f"grant {group} to {names}_app")
    with pytest.raises(SumaclockError, match=f"too powerful.*{group}"):
        run_first_boot(cluster.binaries, cluster.file.superuser_url, {"app_db": names, "app_role": f"{names}_app"})


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"cron_db": "elsewhere"}, 'runs pg_cron in database "postgres"'),
        ({"owner_role": "sumaclock_app"}, "both"),
        ({"dagster_db": "postgres"}, "database of its own"),
        ({"app_db": "sumaclock", "owner_role": "sumaclock_other"}, "belongs to"),
    ],
)
def test_wrong_variables_are_refused_in_words(
    cluster: TestCluster, admin: Connection, variables: dict[str, str], message: str
) -> None:
    try:
        with pytest.raises(SumaclockError, match=message):
            run_first_boot(cluster.binaries, cluster.file.superuser_url, variables)
    finally:
        if _role(admin, "sumaclock_other"):
            admin.execute("drop owned by sumaclock_other")
            admin.execute("drop role sumaclock_other")


def test_the_app_role_cannot_run_it(cluster: TestCluster) -> None:
    with pytest.raises(SumaclockError, match="needs a superuser"):
        run_first_boot(cluster.binaries, cluster.file.cron_database_url)


def test_two_deployments_on_one_cluster_do_not_meet(cluster: TestCluster, app_db: AppDatabase, names: str) -> None:
    other = make_app_database(cluster, names)
    with connect(other.app_url, "test") as conn:
        conn.execute("insert into sumaclock.workers (code_version) values ('1')")
    with connect(app_db.app_url, "test") as conn:
        assert conn.execute("select count(*) from sumaclock.workers").fetchall() == [(0,)]


def _psql_output(cluster: TestCluster, app_db: str) -> str:
    psql, url, script = cluster.binaries.program("psql"), cluster.file.superuser_url, str(sql_file("first_boot.sql"))
    done = subprocess.run(
        [psql, "-X", "-q", "-d", url, f"--set=app_db={app_db}", "-f", script],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


def _schedules(cluster: TestCluster, role: str) -> bool:
    """Whether the role can schedule into the cron database, by trying."""
    with connect(cluster.file.superuser_url, "test as neighbour") as conn:
        conn.execute("select set_config('role', %s, false)", [role])
        try:
            with conn.transaction(force_rollback=True):
                conn.execute("select cron.schedule(%s, '5 4 1 1 *', 'select 1')", [f"test of {role}"])
        except psycopg.errors.InsufficientPrivilege:
            return False
        return True


def _role(admin: Connection, name: str) -> bool:
    return bool(admin.execute("select 1 from pg_roles where rolname = %s", [name]).fetchall())


def _drop(admin: Connection, variables: dict[str, str]) -> None:
    for key in ("app_db", "dagster_db"):
        admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(variables[key])))
    for key in ("app_role", "owner_role", "dagster_role"):
        if _role(admin, variables[key]):
            admin.execute(sql.SQL("drop owned by {0}").format(sql.Identifier(variables[key])))
            admin.execute(sql.SQL("drop role {0}").format(sql.Identifier(variables[key])))
