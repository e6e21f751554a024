"""One-off commands run by pg_cron itself: runners of a role, the example from the field, direct commands."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg import sql

from sumaclock_dagster.cli.clock import clear
from sumaclock_dagster.cli.doctor import migrate
from sumaclock_dagster.cli.once import once
from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import Connection, connect, with_database
from sumaclock_dagster.embedded.ground import ensure_runners
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.once.direct import clear_direct, list_direct, place_direct
from sumaclock_dagster.once.runners import list_runner_jobs, place_runners
from tests.conftest import AppDatabase, TestCluster
from tests.once import failed, login_role, queue, queued
from tests.waiting import until

pytestmark = pytest.mark.firing
SCHEMAS = 200
# On pg_cron 1.4 the first look comes with the next minute.
FIRST_LOOK_SECONDS = 70
USES_WORKERS = "select bool_or(value = 'on') from sumaclock.clock_settings() where name = 'cron.use_background_workers'"


@pytest.fixture
def environment(app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMACLOCK_HOME", str(app_db.settings.home))
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", app_db.app_url)
    monkeypatch.setenv("SUMACLOCK_CRON_DATABASE_URL", app_db.cron_url)
    monkeypatch.setenv("SUMACLOCK_SUPERUSER_URL", with_database(app_db.superuser_url, "postgres"))


@pytest.fixture
def cron(app_db: AppDatabase) -> Iterator[Connection]:
    with connect(app_db.cron_url, "test cron") as conn:
        yield conn


def run(*arguments: object) -> Result:
    return CliRunner().invoke(once, [str(argument) for argument in arguments], prog_name="sumaclock once")


def read(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def looked(conn: Connection) -> bool:
    """Whether every runner and the watcher of the connection's role have looked."""
    row = conn.execute("select count(*) > 1 and bool_and(looked_at is not null) from sumaclock.job_runners").fetchone()
    return row == (True,)


def keeps_runners(app: Connection, seconds: bool) -> bool:
    """Whether runners stay for their minute and look again, rather than end and be fired anew: not with seconds, and
    not in background workers, for each of which pg_cron 1.4 waits."""
    return not seconds and app.execute(USES_WORKERS).fetchone() == (False,)


def test_pg_cron_runs_the_commands_of_each_role_as_that_role(
    cluster: TestCluster, app_db: AppDatabase, app: Connection, superuser: Connection, environment: None
) -> None:
    """One test for all that needs pg_cron, since the first look may take a minute: 200 schemas of which one is locked
    and one lacks its table, a caller who disconnects, a session that is killed, another role, and VACUUM."""
    superuser.execute(
        "create table public.effects (what text, role text default current_user);"
        "grant select, insert on public.effects to public;"
    )
    make_schemas(superuser)
    with open_clock(app, app_db.cron_url) as clock:
        seconds = clock.features().seconds
    if not seconds and not keeps_runners(app, seconds):
        pytest.skip("pg_cron 1.4 with background workers waits for each job: the next test has what it promises")
    with login_role(cluster, app_db, superuser) as eve, connect(app_db.app_url, "test locker") as locker:
        assert read("enable", "--runners", 4)["runners"] == 4
        assert len(read("enable", "--role", eve.name, "--runners", 1)["placed"]) == 2
        direct = read("add", "--direct", "vacuum (analyze) public.effects")
        with connect(app_db.superuser_url, "test direct") as conn:
            conn.execute("alter table public.effects owner to sumaclock_app")
        until(lambda: looked(app), FIRST_LOOK_SECONDS, "the first look of all runners", poll_seconds=0.2)

        locker.execute('begin; lock table "Tenant 13".invoices in access share mode')
        with connect(app_db.app_url, "test caller") as caller:
            caller.execute(
                "select sumaclock.schedule_once(format('alter table %I.invoices add paid boolean', nspname),"
                " max_attempts => case nspname when 'Tenant 77' then 2 else 5 end, timeout => '3 seconds')"
                " from pg_namespace where nspname like 'Tenant %'"
            )
            killer = queue(
                caller, "select pg_terminate_backend(pg_backend_pid()), pg_sleep(5)", max_attempts=1, priority=-1
            )
            slow = queue(caller, "select pg_sleep(1); insert into public.effects (what) values ('slow')", priority=-2)
        # The caller is gone. What starts within five seconds ends without it.
        until(lambda: len(queued(app)) < SCHEMAS, 8, "the first commands to end")
        with connect(eve.url, "test eve") as as_eve:
            hers = queue(as_eve, "insert into public.effects (what) values ('hers')")
            until(lambda: hers not in queued(as_eve), 12, "the other role's command to end")
        until(lambda: len(queued(app)) <= 4, 60, "all others to end", poll_seconds=0.2)
        locker.execute("rollback")
        until(lambda: queued(app) == [], 90, "the queue to be empty", poll_seconds=0.2)

        assert failed_schemas(app) == [('alter table "Tenant 77".invoices add paid boolean', "42P01", 2)]
        assert failed(app, killer)[0] == "08006"
        assert failed(app, slow) is None
        assert altered_schemas(app) == SCHEMAS - 1
        assert app.execute("select what, role from public.effects order by what").fetchall() == [
            ("hers", eve.name),
            ("slow", "sumaclock_app"),
        ]
        with open_clock(app, app_db.cron_url) as clock:
            [ran] = until(
                lambda: [d for d in list_direct(clock) if d.status in ("succeeded", "failed")],
                130,
                "VACUUM",
            )
        assert (ran.name, ran.command) == (direct["clock_job"], "vacuum (analyze) public.effects")
        assert (ran.status, ran.message) == ("succeeded", "VACUUM")
        assert app.execute("select last_vacuum from pg_stat_user_tables where relname = 'effects'").fetchone() != (
            None,
        )
        assert [entry["status"] for entry in read("list", "--direct")] == ["succeeded"]
        assert read("disable", "--role", eve.name)["runners"] == 0
        assert len(read("disable")["removed"]) == 5


def test_the_schemas_where_pg_cron_waits_for_each_job(
    app_db: AppDatabase, app: Connection, superuser: Connection, environment: None
) -> None:
    """Nobody keeps a time-out there, and a command that waits for a lock stops the clock: it brings its own limit."""
    with open_clock(app, app_db.cron_url) as clock:
        seconds = clock.features().seconds
    if seconds or keeps_runners(app, seconds):
        pytest.skip("pg_cron fires several at once here: the test before has the schemas")
    make_schemas(superuser)
    with connect(app_db.app_url, "test locker") as locker:
        assert read("enable", "--runners", 4)["runners"] == 4
        locker.execute('begin; lock table "Tenant 13".invoices in access share mode')
        app.execute(
            "select sumaclock.schedule_once(format('set local lock_timeout = ''2s'';"
            " alter table %I.invoices add paid boolean', nspname),"
            " max_attempts => case nspname when 'Tenant 77' then 2 else 5 end)"
            " from pg_namespace where nspname like 'Tenant %'"
        )
        tried = "select sqlstate, attempts from sumaclock.job_queue where command like '%\"Tenant 13\"%'"
        until(lambda: app.execute(tried).fetchall() == [("55P03", 1)], 150, "the locked one to fail", poll_seconds=0.2)
        until(lambda: len(queued(app)) <= 2, 60, "all others to end", poll_seconds=0.2)
        locker.execute("rollback")
        until(lambda: queued(app) == [], 180, "the queue to be empty", poll_seconds=0.2)
        assert [row[1:] for row in failed_schemas(app)] == [("42P01", 2)]
        assert altered_schemas(app) == SCHEMAS - 1
        read("disable")


def make_schemas(superuser: Connection) -> None:
    """A table in each of them but one."""
    superuser.execute(
        "do $$ begin for n in 1..200 loop execute format('create schema %I authorization sumaclock_app;"
        " create table %1$I.invoices (id int); alter table %1$I.invoices owner to sumaclock_app', 'Tenant ' || n);"
        ' end loop; drop table "Tenant 77".invoices; end $$'
    )


def altered_schemas(app: Connection) -> int:
    rows = app.execute(
        "select count(*) from pg_attribute a join pg_class c on c.oid = a.attrelid"
        " join pg_namespace n on n.oid = c.relnamespace where a.attname = 'paid' and n.nspname like 'Tenant %'"
    ).fetchall()
    return int(rows[0][0])


def failed_schemas(app: Connection) -> list[tuple[str, str, int]]:
    rows = app.execute("select command, sqlstate, attempts from sumaclock.job_errors order by jobid").fetchall()
    return [row for row in rows if "Tenant" in row[0]]


def test_commands_run_within_minutes_however_pg_cron_fires(
    cluster: TestCluster, app_db: AppDatabase, app: Connection, superuser: Connection, environment: None
) -> None:
    superuser.execute("create table public.effects (role text default current_user); grant insert on effects to public")
    with login_role(cluster, app_db, superuser) as eve:
        read("enable", "--runners", 1)
        read("enable", "--role", eve.name, "--runners", 1)
        queue(app, "insert into public.effects default values")
        with connect(eve.url, "test eve") as as_eve:
            queue(as_eve, "insert into public.effects default values")
        until(lambda: superuser.execute("select count(*) from effects").fetchone() == (2,), 150, "both roles' commands")
        roles = superuser.execute("select role from public.effects order by role = 'sumaclock_app'").fetchall()
        assert roles == [(eve.name,), ("sumaclock_app",)]
        read("disable", "--role", eve.name)
        read("disable")


def test_runners_are_made_changed_and_removed(
    app_db: AppDatabase, app: Connection, cron: Connection, environment: None
) -> None:
    with open_clock(app, app_db.cron_url) as clock:
        seconds = clock.features().seconds
        first = place_runners(app, clock, 4)
        assert (len(first.placed), first.removed, place_runners(app, clock, 4).placed) == (5, [], [])
        names = [f"{app_db.name}:job-watcher", *(f"{app_db.name}:job-runner-{slot}" for slot in range(1, 5))]
        found = list_runner_jobs(clock)
        assert [job.name for job in found] == names
        assert {job.schedule for job in found[1:]} == {"5 seconds" if seconds else "* * * * *"}
        assert all("look_for => '57 seconds'" in job.command for job in found) is keeps_runners(app, seconds)
        assert {job.database for job in found} == {app_db.name}
        cron.execute("select cron.unschedule(%s::bigint)", [found[2].jobid])
        assert place_runners(app, clock, 4).placed == [names[2]]
        assert place_runners(app, clock, 2).removed == names[3:]
        assert app.execute("select slot from sumaclock.job_runners order by 1").fetchall() == [(0,), (1,), (2,)]
        assert len(place_runners(app, clock, 0).removed) == 3
        assert (list_runner_jobs(clock), app.execute("select * from sumaclock.job_runners").fetchall()) == ([], [])
        with pytest.raises(SumaclockError, match="no role 'nobody_here'"):
            place_runners(app, clock, 1, "nobody_here")
        with pytest.raises(SumaclockError, match="'postgres' is a superuser"):
            place_runners(app, clock, 1, "postgres")


def test_background_workers_are_not_kept_and_pg_cron_1_4_is_warned_of(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    superuser.execute(
        "create or replace function sumaclock.clock_settings() returns table (name text, value text)"
        " language sql as $$ values ('cron.use_background_workers', 'on') $$"
    )
    with open_clock(app, app_db.cron_url) as clock:
        seconds = clock.features().seconds
        done = place_runners(app, clock, 3)
        assert [job.name for job in list_runner_jobs(clock) if "'57 seconds'" in job.command] == []
        assert (done.start_delay.total_seconds(), len(done.warnings)) == ((5, 0) if seconds else (60, 1))
        assert seconds or "cron.use_background_workers = off" in done.warnings[0]


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ([], None),
        (["role {role} set statement_timeout = '30s'"], "30s"),
        (["database {db} set statement_timeout = '40s'"], "40s"),
        (["database {db} set statement_timeout = '40s'", "role {role} set statement_timeout = 0"], None),
        (["role {role} set statement_timeout = 0", "role {role} in database {db} set statement_timeout = 500"], "500"),
    ],
)
def test_a_statement_timeout_of_the_role_is_warned_of(
    cluster: TestCluster, app_db: AppDatabase, superuser: Connection, settings: list[str], found: str | None
) -> None:
    with login_role(cluster, app_db, superuser) as role, open_clock(superuser, superuser_cron(app_db)) as clock:
        for setting in settings:
            superuser.execute(f"alter {setting.format(role=role.name, db=app_db.name)}")
        warnings = place_runners(superuser, clock, 1, role.name).warnings
        place_runners(superuser, clock, 0, role.name)
    timeouts = [text for text in warnings if "statement_timeout" in text]
    assert len(timeouts) == (found is not None)
    assert found is None or f"statement_timeout = {found}," in timeouts[0]


def superuser_cron(app_db: AppDatabase) -> str:
    return with_database(app_db.superuser_url, "postgres")


def test_another_roles_runners_take_a_superuser(
    app_db: AppDatabase, app: Connection, environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_clock(app, app_db.cron_url) as clock, pytest.raises((SumaclockError, psycopg.Error)):
        place_runners(app, clock, 1, "sumaclock_dagster")
    monkeypatch.delenv("SUMACLOCK_SUPERUSER_URL")
    refused = run("enable", "--role", "sumaclock_dagster")
    assert refused.exit_code == 1
    assert "set SUMACLOCK_SUPERUSER_URL" in refused.stderr


def test_direct_commands_that_have_fired_are_swept(app_db: AppDatabase, app: Connection, cron: Connection) -> None:
    with open_clock(app, app_db.cron_url) as clock:
        name, _ = place_direct(clock, "vacuum -- it's %s {x} $$")
        later, _ = place_direct(clock, "select 1")
        assert [(d.name, d.status) for d in list_direct(clock)] == [(n, "waiting") for n in sorted((name, later))]
        sweeper = f"{app_db.name}:once:sweeper"
        [(command, database)] = cron.execute(
            "select command, database from cron.job where jobname = %s", [sweeper]
        ).fetchall()
        assert database == "postgres"
        cron.execute(command)
        assert len(list_direct(clock)) == 2
        with connect(with_database(app_db.superuser_url, "postgres"), "test clock") as admin:
            # As if it had fired long ago.
            admin.execute(
                "update cron.job set jobname = regexp_replace(jobname::text, ':once:[0-9]{12}', ':once:202001010000')"
                " where jobname = %s",
                [name],
            )
            cron.execute(command)
            assert [d.name for d in list_direct(clock)] == [later]
            admin.execute(
                "update cron.job set jobname = regexp_replace(jobname::text, ':once:[0-9]{12}', ':once:202001010000')"
                " where jobname = %s",
                [later],
            )
            cron.execute(command)
            cron.execute(command)
        assert (
            cron.execute(
                "select jobname from cron.job where database in (%s, 'postgres') and jobname like %s",
                [app_db.name, f"{app_db.name}:once:%"],
            ).fetchall()
            == []
        )
        for wrong in ("", "  ", "a\x00b"):
            with pytest.raises(SumaclockError, match="without NUL"):
                place_direct(clock, wrong)


def test_a_role_that_may_schedule_has_direct_commands_of_its_own(
    cluster: TestCluster, app_db: AppDatabase, app: Connection, superuser: Connection, environment: None
) -> None:
    rights = (
        "grant usage on schema cron to {}",
        "grant execute on function cron.schedule_in_database(text, text, text, text, text, boolean) to {}",
        "grant select on cron.job, cron.job_run_details to {}",
    )
    cron_url = with_database(app_db.superuser_url, "postgres")
    with login_role(cluster, app_db, superuser) as eve, connect(cron_url, "test superuser") as root:
        role = sql.Identifier(eve.name)
        with connect(eve.url, "test eve") as as_eve, open_clock(as_eve, with_database(eve.url, "postgres")) as clock:
            with pytest.raises((SumaclockError, psycopg.Error), match="permission denied"):
                place_direct(clock, "vacuum")
            try:
                for right in rights:
                    root.execute(sql.SQL(right).format(role))
                name, _ = place_direct(clock, "vacuum")
                assert [entry.name for entry in list_direct(clock)] == [name]
                rows = root.execute(
                    "select distinct username from cron.job where starts_with(jobname::text, %s)",
                    [f"{app_db.name}:once:"],
                ).fetchall()
                assert rows == [(eve.name,)], "pg_cron logs in as who scheduled"
                # The name of another, even one's own, takes a superuser.
                with pytest.raises((SumaclockError, psycopg.Error)):
                    clock.call(lambda conn: conn.execute(AS_ANOTHER, [app_db.name]))
                with open_clock(app, app_db.cron_url) as ours:
                    assert list_direct(ours) == []
                assert clear_direct(clock) == 2
            finally:
                root.execute(sql.SQL("drop owned by {}").format(role))


AS_ANOTHER = "select cron.schedule_in_database('x', '* * * * *', 'select', %s, 'sumaclock_app')"


def test_a_runner_that_is_killed_leaves_its_command_to_another(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    app.execute("select sumaclock.note_runners(current_user, 1)")
    jobid = queue(app, "select pg_sleep(30)")
    with connect(app_db.app_url, "test runner") as runner:

        def work() -> None:
            with pytest.raises(psycopg.OperationalError):
                runner.execute("call sumaclock.run_jobs(slot => 1)")

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        until(lambda: app.execute("select 1 from sumaclock.job_queue where claimed_at is not null").fetchall())
        superuser.execute("select pg_terminate_backend(%s, 5000)", [runner.info.backend_pid])
        thread.join(10)
    with connect(app_db.app_url, "test runner 2") as other:
        # The slot is free at once, too.
        until(
            lambda: (
                other.execute("call sumaclock.run_jobs(slot => 1)"),
                app.execute("select attempts from sumaclock.job_queue where claimed_at is null").fetchall(),
            )[1]
        )
    assert app.execute("select jobid, attempts, sqlstate from sumaclock.job_queue").fetchall() == [(jobid, 1, "08006")]


def test_up_and_migrate_make_the_app_roles_runners(
    app_db: AppDatabase, app: Connection, monkeypatch: pytest.MonkeyPatch, environment: None
) -> None:
    ensure_runners(app_db.settings.model_copy(update={"job_runners": 2}))
    with open_clock(app, app_db.cron_url) as clock:
        assert len(list_runner_jobs(clock)) == 3
        monkeypatch.setenv("SUMACLOCK_OWNER_DATABASE_URL", app_db.owner_url)
        migrated = CliRunner().invoke(migrate, ["--json"])
        assert (migrated.exit_code, json.loads(migrated.stdout)) == (0, {"applied": []})
        assert len(list_runner_jobs(clock)) == 5
        monkeypatch.setenv("SUMACLOCK_JOB_RUNNERS", "0")
        assert CliRunner().invoke(migrate, []).exit_code == 0
        assert list_runner_jobs(clock) == []
    monkeypatch.setenv("SUMACLOCK_CRON_DATABASE_URL", "postgresql://x@127.0.0.1:1/postgres")
    alone = CliRunner().invoke(migrate, ["--json"])
    assert (alone.exit_code, json.loads(alone.stdout)) == (0, {"applied": []})
    assert "One-off commands have no runners yet" in alone.stderr


def test_clearing_the_clock_takes_runners_and_direct_commands_along(
    app_db: AppDatabase, app: Connection, cron: Connection, environment: None
) -> None:
    with open_clock(app, app_db.cron_url) as clock:
        place_runners(app, clock, 2)
        place_direct(clock, "vacuum")
    cleared = CliRunner().invoke(clear, ["--yes", "--json"])
    assert cleared.exit_code == 0
    left = cron.execute("select jobname from cron.job where jobname like %s", [f"{app_db.name}:%"]).fetchall()
    assert left == []
    assert json.loads(cleared.stdout)["removed"] >= 5
    again = CliRunner().invoke(clear, ["--yes", "--json"])
    assert json.loads(again.stdout)["removed"] == 0
