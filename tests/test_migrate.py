"""The migration runner: once, in order, whole or not at all, and never against a database that it does not fit."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.embedded.creation import run_first_boot
from sumaclock_dagster.migrate import Migration, load_migrations, migrate, pending, sql_file
from sumaclock_dagster.model import SumaclockError
from tests.conftest import AppDatabase, TestCluster, describe_app_database, drop_app_database
from tests.dump_schema import comparable, dump_schema, schema_path

ONE = Migration(1, "0001_one", b"create table sumaclock.one (id int);")
TWO = Migration(2, "0002_two", b"create table sumaclock.two (id int); insert into sumaclock.two values (1);")
BROKEN = Migration(2, "0002_two", b"create table sumaclock.two (id int);\n\nselect 1\n  from nowhere;\n")

RUNNER = """
import sys
from pathlib import Path
from sumaclock_dagster.db import connect
from sumaclock_dagster.migrate import load_migrations, migrate
with connect(sys.argv[1], "test runner") as conn:
    sys.stdin.readline()
    print(",".join(migrate(conn, load_migrations(Path(sys.argv[2])))))
"""


@pytest.fixture
def bare(cluster: TestCluster) -> Iterator[AppDatabase]:
    """An app database after first_boot.sql, without any migration."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        run_first_boot(cluster.binaries, cluster.file.superuser_url, {"app_db": name})
        yield describe_app_database(cluster, name)
    finally:
        drop_app_database(cluster, name)


@pytest.fixture
def owner(bare: AppDatabase) -> Iterator[Connection]:
    with connect(bare.owner_url, "test owner") as conn:
        yield conn


def test_applies_in_order_and_only_once(owner: Connection) -> None:
    assert [migration.name for migration in pending(owner, [ONE, TWO])] == ["0001_one", "0002_two"]
    assert migrate(owner, [ONE]) == ["0001_one"]
    assert [migration.name for migration in pending(owner, [ONE, TWO])] == ["0002_two"]
    assert migrate(owner, [ONE, TWO]) == ["0002_two"]
    assert migrate(owner, [ONE, TWO]) == []
    assert owner.execute("select id from sumaclock.two").fetchall() == [(1,)]


def test_four_at_once_one_applies_and_three_wait(bare: AppDatabase, tmp_path: Path) -> None:
    (tmp_path / "0001_slow.sql").write_text("create table sumaclock.one (id int); select pg_sleep(0.4);")
    (tmp_path / "0002_slow.sql").write_text("create table sumaclock.two (id int); select pg_sleep(0.4);")
    runners = [
        subprocess.Popen(
            [sys.executable, "-c", RUNNER, bare.owner_url, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for runner in runners:
        assert runner.stdin is not None
        runner.stdin.write("go\n")
        runner.stdin.flush()
    said = [runner.communicate(timeout=60)[0].strip() for runner in runners]
    assert sorted(said) == ["", "", "", "0001_slow,0002_slow"]
    assert [runner.returncode for runner in runners] == [0, 0, 0, 0]


def test_a_failing_file_is_rolled_back_whole_and_says_where(owner: Connection) -> None:
    with pytest.raises(SumaclockError, match='0002_two failed at line 4 and was rolled back whole: relation "nowhere"'):
        migrate(owner, [ONE, BROKEN])
    assert owner.execute(
        "select to_regclass('sumaclock.one') is null, to_regclass('sumaclock.two') is null"
    ).fetchall() == [(False, True)]
    assert migrate(owner, [ONE, TWO]) == ["0002_two"]


def test_a_file_cannot_end_its_own_transaction(owner: Connection) -> None:
    sneaky = Migration(1, "0001_sneaky", b"create table sumaclock.one (id int); commit; select 1;")
    with pytest.raises(SumaclockError, match="0001_sneaky ended its own transaction"):
        migrate(owner, [sneaky])


def test_an_edited_file_is_refused(owner: Connection) -> None:
    migrate(owner, [ONE])
    edited = replace(ONE, sql=ONE.sql + b" -- better")
    for call in (pending, migrate):
        with pytest.raises(SumaclockError, match="0001_one was edited"):
            call(owner, [edited, TWO])
    assert owner.execute("select to_regclass('sumaclock.two')").fetchall() == [(None,)]


def test_line_ends_are_no_edit(owner: Connection) -> None:
    unix = Migration(1, "0001_one", b"create table sumaclock.one\n(id int);\n")
    migrate(owner, [unix])
    assert pending(owner, [replace(unix, sql=unix.sql.replace(b"\n", b"\r\n"))]) == []


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([ONE], "ahead of this code: it has migration 0002_two, and the newest here is 0001_one"),
        ([], "ahead of this code"),
        ([TWO], "has migration 0001_one, but its file is missing"),
        ([ONE, replace(TWO, name="0002_other")], r"has migration 0002_two, but its file is missing here \(0002_other"),
    ],
)
def test_a_database_that_does_not_fit_the_code_is_refused(
    owner: Connection, files: list[Migration], message: str
) -> None:
    migrate(owner, [ONE, TWO])
    for call in (pending, migrate):
        with pytest.raises(SumaclockError, match=message):
            call(owner, files)


def test_a_number_in_between_is_refused(owner: Connection) -> None:
    migrate(owner, [replace(TWO, number=3, name="0003_two")])
    with pytest.raises(SumaclockError, match="0001_one was never applied"):
        migrate(owner, [ONE, replace(TWO, number=3, name="0003_two")])


def test_a_forgotten_schema_name_is_an_error(owner: Connection) -> None:
    with pytest.raises(SumaclockError, match=r"no schema|denied"):
        migrate(owner, [Migration(1, "0001_one", b"create table one (id int);")])


def test_the_lock_is_given_back_after_failure(bare: AppDatabase, owner: Connection) -> None:
    with pytest.raises(SumaclockError):
        migrate(owner, [ONE, BROKEN])
    with connect(bare.owner_url, "test second") as second:
        assert migrate(second, [ONE, TWO]) == ["0002_two"]


def test_the_app_role_reads_the_ledger_and_migrates_nothing(app: Connection) -> None:
    assert pending(app, load_migrations()) == []
    with pytest.raises(SumaclockError, match="run as its owner role 'sumaclock_owner', not as 'sumaclock_app'"):
        migrate(app, load_migrations())


def test_what_a_superuser_migrates_belongs_to_the_owner_role(superuser_of_bare: Connection) -> None:
    assert migrate(superuser_of_bare, [ONE]) == ["0001_one"]
    rows = superuser_of_bare.execute(
        "select distinct relowner::regrole::text from pg_class where relnamespace = 'sumaclock'::regnamespace"
    ).fetchall()
    assert rows == [("sumaclock_owner",)]
    assert superuser_of_bare.execute("select current_user::text").fetchall() == [("postgres",)]


def test_an_outsider_is_told_that_it_is_one(app_db: AppDatabase, superuser: Connection) -> None:
    superuser.execute(f"grant connect on database {app_db.name} to sumaclock_dagster")
    outsider = make_conninfo(app_db.app_url, user="sumaclock_dagster")
    with connect(outsider, "test") as conn, pytest.raises(SumaclockError, match="neither its owner role nor its app"):
        pending(conn, load_migrations())


def test_before_first_boot_it_says_what_to_do(cluster: TestCluster) -> None:
    with (
        connect(cluster.file.superuser_url, "test") as conn,
        pytest.raises(SumaclockError, match=r"Database 'postgres' has no schema sumaclock. Run sql/first_boot.sql"),
    ):
        migrate(conn, [ONE])


def test_without_the_app_roles_name_it_says_what_to_do(bare: AppDatabase, superuser_of_bare: Connection) -> None:
    superuser_of_bare.execute(f"alter database {bare.name} reset sumaclock.app_role")
    with connect(bare.owner_url, "test") as conn, pytest.raises(SumaclockError, match="which role is the app role"):
        migrate(conn, [ONE])


@pytest.fixture
def superuser_of_bare(bare: AppDatabase) -> Iterator[Connection]:
    with connect(bare.superuser_url, "test") as conn:
        yield conn


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["0001_a.sql", "0003_c.sql"], "0003_c stands where number 0002 should"),
        (["0001_a.sql", "0001_b.sql"], "0001_b stands where number 0002 should"),
        (["0001_A.sql"], "not named like a migration"),
        (["1_a.sql"], "not named like a migration"),
    ],
)
def test_wrong_file_names_are_refused(tmp_path: Path, names: list[str], message: str) -> None:
    for name in names:
        (tmp_path / name).write_text("select 1")
    with pytest.raises(SumaclockError, match=message):
        load_migrations(tmp_path)


def test_our_own_files_leave_the_transaction_to_the_runner() -> None:
    files = load_migrations()
    control = re.compile(rb"^\s*(commit|rollback|start\s+transaction|begin\s*;|vacuum)\b", re.MULTILINE | re.IGNORECASE)
    # A procedure may end its caller's transactions.
    bodies = re.compile(rb"(\$\w*\$).*?\1", re.DOTALL)
    assert [file.name for file in files if control.search(bodies.sub(b"", file.sql))] == []
    assert [file.number for file in files] == list(range(1, len(files) + 1))


def test_a_missing_sql_file_is_named() -> None:
    with pytest.raises(SumaclockError, match=r"sql/nothing\.sql is missing"):
        sql_file("nothing.sql")


def test_the_dumped_schema_is_current(cluster: TestCluster, app_db: AppDatabase) -> None:
    made = dump_schema(cluster.binaries, app_db.superuser_url)
    assert comparable(schema_path().read_text()) == comparable(made), (
        "sql/schema.sql is not what the migrations make. Regenerate it: python -m tests.dump_schema"
    )


def test_a_broken_connection_is_told_as_such(owner: Connection, superuser_of_bare: Connection) -> None:
    superuser_of_bare.execute("select pg_terminate_backend(%s)", [owner.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        migrate(owner, [ONE])
