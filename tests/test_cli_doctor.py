"""The commands `doctor` and `migrate`: what they print and how they exit."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from sumaclock_dagster.cli.doctor import doctor, migrate
from sumaclock_dagster.embedded.creation import run_first_boot
from sumaclock_dagster.migrate import load_migrations
from tests.conftest import AppDatabase, TestCluster, describe_app_database, drop_app_database


@pytest.fixture
def unmigrated(cluster: TestCluster) -> Iterator[AppDatabase]:
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        run_first_boot(cluster.binaries, cluster.file.superuser_url, {"app_db": name})
        yield describe_app_database(cluster, name)
    finally:
        drop_app_database(cluster, name)


def environment(app_db: AppDatabase, **changes: str) -> dict[str, str]:
    return {
        "SUMACLOCK_HOME": str(app_db.settings.home),
        "SUMACLOCK_DATABASE_URL": app_db.app_url,
        "SUMACLOCK_OWNER_DATABASE_URL": app_db.owner_url,
        "SUMACLOCK_CRON_DATABASE_URL": app_db.cron_url,
        "SUMACLOCK_DAGSTER_DATABASE_URL": app_db.settings.dagster_url,
        **changes,
    }


def run(command: object, app_db: AppDatabase, *arguments: str, **changes: str) -> Result:
    return CliRunner().invoke(command, list(arguments), env=environment(app_db, **changes))


def test_doctor_lists_every_check_and_exits_0(app_db: AppDatabase) -> None:
    result = run(doctor, app_db)
    assert result.exit_code == 0, result.output
    for name in ("app database", "sessions", "migrations", "cron rights", "pg_cron launcher", "Dagster database"):
        assert name in result.stdout
    assert "failed" not in result.stdout


def test_doctor_exits_1_with_problem_and_remedy_on_lines_of_their_own(app_db: AppDatabase) -> None:
    result = run(doctor, app_db, SUMACLOCK_DATABASE_URL=f"postgresql://a:hunter2@127.0.0.1:1/{app_db.name}")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    at = lines.index("app database: Nothing accepts connections at 127.0.0.1:1.")
    assert lines[at + 1] == "  Start PostgreSQL there, or correct host and port in SUMACLOCK_DATABASE_URL."
    assert "hunter2" not in result.output
    assert "Traceback" not in result.output


def test_doctor_as_json(app_db: AppDatabase) -> None:
    well = json.loads(run(doctor, app_db, "--json").stdout)
    assert well["ok"] is True
    assert {check["outcome"] for check in well["checks"]} == {"ok"}
    result = run(doctor, app_db, "--json", SUMACLOCK_CLAIM_BATCH="0")
    assert result.exit_code == 1
    ill = json.loads(result.stdout)
    assert ill["ok"] is False
    (failed,) = (check for check in ill["checks"] if check["outcome"] == "failed")
    assert failed["name"] == "settings"
    assert failed["problem"] == "SUMACLOCK_CLAIM_BATCH must be a whole number from 1 up to 500, not '0'."
    assert failed["remedy"] == "Set SUMACLOCK_CLAIM_BATCH to such a value, or unset it for its default (10)."
    assert {check["outcome"] for check in ill["checks"]} == {"ok", "failed", "skipped"}


def test_a_misspelt_variable_warns_and_exits_0(app_db: AppDatabase) -> None:
    result = run(doctor, app_db, SUMACLOCK_CLIAM_BATCH="5")
    assert result.exit_code == 0
    assert "Rename it to SUMACLOCK_CLAIM_BATCH" in result.stdout


def test_migrate_checks_applies_and_then_has_nothing_to_do(unmigrated: AppDatabase) -> None:
    names = [migration.name for migration in load_migrations()]
    check = run(migrate, unmigrated, "--check")
    assert check.exit_code == 1
    assert check.stdout.splitlines() == [f"{name} pending" for name in names]
    applied = run(migrate, unmigrated)
    assert applied.exit_code == 0, applied.output
    assert applied.stdout.splitlines() == [f"{name} applied" for name in names]
    for arguments in (["--check"], []):
        again = run(migrate, unmigrated, *arguments)
        assert again.exit_code == 0
        assert again.stdout == "The schema is up to date.\n"
    assert run(doctor, unmigrated).exit_code == 0


def test_migrate_as_json(unmigrated: AppDatabase) -> None:
    names = [migration.name for migration in load_migrations()]
    assert json.loads(run(migrate, unmigrated, "--check", "--json").stdout) == {"pending": names}
    assert json.loads(run(migrate, unmigrated, "--json").stdout) == {"applied": names}
    assert json.loads(run(migrate, unmigrated, "--json").stdout) == {"applied": []}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SUMACLOCK_OWNER_DATABASE_URL": "postgresql://a:hunter2@127.0.0.1:1/b"}, "Nothing accepts connections"),
        ({"SUMACLOCK_OWNER_DATABASE_URL": "hunter2"}, "SUMACLOCK_OWNER_DATABASE_URL is not a PostgreSQL URL"),
        ({"SUMACLOCK_CLAIM_BATCH": "many"}, "SUMACLOCK_CLAIM_BATCH must be a whole number"),
    ],
)
def test_migrate_says_on_stderr_why_it_refuses(app_db: AppDatabase, changes: dict[str, str], said: str) -> None:
    result = run(migrate, app_db, **changes)
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stdout == ""
    assert "hunter2" not in result.output


def test_migrate_as_the_app_role_is_refused(unmigrated: AppDatabase) -> None:
    result = run(migrate, unmigrated, SUMACLOCK_OWNER_DATABASE_URL=unmigrated.app_url)
    assert result.exit_code == 1
    assert "SUMACLOCK_OWNER_DATABASE_URL" in result.stderr
    assert run(migrate, unmigrated, "--check").exit_code == 1


def test_an_unknown_option_is_a_usage_error(app_db: AppDatabase) -> None:
    assert run(doctor, app_db, "--everything").exit_code == 2
