"""`sumaclock drift` and `sumaclock clock` on real pg_cron."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from sumaclock_dagster.cli.main import main
from sumaclock_dagster.clock.jobs import database_time
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.clock.system_jobs import system_clock_jobs
from sumaclock_dagster.db import Connection
from sumaclock_dagster.raw_schedule import next_utc
from tests.conftest import AppDatabase
from tests.reconcile import NEVER_SOON, clock_rows, cron_as_superuser, insert_jobs, new_job


@pytest.fixture
def clock(app: Connection, app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", app_db.app_url)
    monkeypatch.setenv("SUMACLOCK_CRON_DATABASE_URL", app_db.cron_url)
    with open_clock(app, app_db.cron_url) as opened:
        yield opened


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin, prog_name="sumaclock")


def read(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def test_drift_is_shown_with_both_sides_and_mended_with_fix(app: Connection, clock: Clock) -> None:
    assert run("drift").stdout == "No drift: pg_cron says what the jobs say.\n"
    (missing,) = insert_jobs(app, 1)
    clock.schedule(orphan := uuid4(), "1 1 1 1 *")

    shown = run("drift")
    assert shown.exit_code == 1
    assert "Drift: 1 missing, 1 orphan." in shown.stdout
    assert str(missing) in shown.stdout
    assert str(orphan) in shown.stdout
    assert NEVER_SOON in shown.stdout
    assert "`sumaclock drift --fix` mends it." in shown.stdout
    told = read("drift")
    assert (told["found"], told["mended"]) == ({"missing": 1, "orphan": 1}, {})
    assert {(line["job_id"], line["drift"], line["wanted"], line["found"]) for line in told["left"]} == {
        (str(missing), "missing", NEVER_SOON, "no clock job"),
        (str(orphan), "orphan", "no clock job", "1 1 1 1 *"),
    }

    fixed = run("drift", "--fix")
    assert fixed.exit_code == 0
    assert "Mended: 1 missing, 1 orphan." in fixed.stdout
    assert "2 of 2 jobs looked at" in fixed.stderr
    assert [job.job_id for job in clock.listed()] == [missing]
    assert read("drift", "--fix") == {
        "found": {},
        "mended": {},
        "left": [],
        "clock_jobs_placed": 0,
        "clock_jobs_removed": 0,
        "rows_mended": 0,
    }


def test_what_a_fix_leaves_is_said_with_the_reason(app: Connection, clock: Clock) -> None:
    insert_jobs(app, 1, "FRI-MON * * * *")
    left = run("drift", "--fix")
    assert left.exit_code == 1
    assert "Left: 1 missing." in left.stdout
    assert "Schedule 'FRI-MON * * * *', minute 'FRI-MON'" in left.stdout


def test_clock_list_shows_the_next_minute_first(app: Connection, clock: Clock, app_db: AppDatabase) -> None:
    later, sooner, off = (new_job(app, clock, schedule) for schedule in (NEVER_SOON, "30 * * * *", "1 1 1 1 *"))
    with cron_as_superuser(app_db) as cron:
        cron.execute("update cron.job set active = false where jobname = %s", [f"{app_db.name}:cron:{off}"])
    records = read("clock", "list")
    system = [job.what for job in system_clock_jobs()]
    assert [record["job_id"] for record in records] == [str(sooner), str(later), str(off), *[None for _ in system]]
    assert [record["system_clock_job"] for record in records] == [None, None, None, *system]
    expected = next_utc(NEVER_SOON, database_time(app)).replace(tzinfo=None)
    assert records[1]["next_firing_at"] == f"{expected.isoformat(timespec='microseconds')}Z"
    assert records[2]["next_firing_at"] is None
    shown = run("clock", "list", "--limit", "2").stdout
    assert f"{expected:%Y-%m-%d %H:%M} UTC" in shown
    assert str(off) not in shown
    assert f"{3 + len(system)} clock jobs." in shown


def test_clock_clear_names_the_database_and_the_number_and_asks(
    app: Connection, clock: Clock, app_db: AppDatabase
) -> None:
    for job_id in insert_jobs(app, 3):
        clock.schedule(job_id, NEVER_SOON)
    with cron_as_superuser(app_db) as cron:
        cron.execute(
            "insert into cron.job (schedule, command, nodename, nodeport, database, username, jobname)"
            " values (%s, 'select 1', 'localhost', 1, %s, 'sumaclock_app', 'of a neighbour')",
            [NEVER_SOON, app_db.name],
        )
        refused = run("clock", "clear", stdin="n\n")
        assert refused.exit_code == 1
        number = 3 + len(system_clock_jobs())
        assert f"Remove the {number} clock jobs of '{app_db.name}'?" in refused.stderr
        assert len(clock.listed()) == 3
        done = run("clock", "clear", stdin="y\n")
        assert done.exit_code == 0
        assert done.stdout == f"{number} clock jobs of database '{app_db.name}' are removed.\n"
        assert [row[0] for row in clock_rows(cron, app_db.name)] == ["of a neighbour"]
    assert read("clock", "clear", "--yes") == {"database": app_db.name, "removed": 0}


def test_a_jobs_catch_up_policy_is_given_shown_and_changed(clock: Clock) -> None:
    common = ["jobs", "add", "--kind", "demo", "--org", "acme", "--user", "ada", "--schedule", NEVER_SOON]
    assert read(*common)["catch_up"] == "one"
    job_id = read(*common, "--catch-up", "none")["id"]
    assert "is skipped" in run("jobs", "show", job_id).stdout
    assert read("jobs", "edit", job_id, "--catch-up", "one")["catch_up"] == "one"
    assert "fires once, late" in run("jobs", "show", job_id).stdout
    assert read("jobs", "edit", job_id, "--schedule", "1 1 1 1 *")["catch_up"] == "one"
