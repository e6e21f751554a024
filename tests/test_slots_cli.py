"""What the CLI says of slots."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sumaclock_dagster.cli.main import main
from sumaclock_dagster.clock.faults import diagnose
from sumaclock_dagster.clock.jobs import pause_job
from sumaclock_dagster.clock.look import read_signs
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.clock.slots import slot_id
from sumaclock_dagster.clock.system_jobs import system_clock_jobs
from sumaclock_dagster.db import Connection, connect
from tests.conftest import AppDatabase
from tests.reconcile import NEVER_SOON, clock_rows, cron_as_superuser, new_job
from tests.slots import in_slots, slot_schedules
from tests.tasks import add_task, make_task_effects, settled, task_worker

OTHER = "1 1 1 1 *"


@pytest.fixture
def clock(app: Connection, app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", app_db.app_url)
    monkeypatch.setenv("SUMACLOCK_CRON_DATABASE_URL", app_db.cron_url)
    monkeypatch.setenv("SUMACLOCK_CLOCK", "slots")
    with open_clock(app, app_db.cron_url, "slots") as opened:
        yield opened


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, prog_name="sumaclock")


def read(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def test_clock_list_shows_slots_with_their_number_of_jobs(app: Connection, clock: Clock) -> None:
    jobs = [new_job(app, clock) for _ in range(3)]
    pause_job(app, clock, jobs[0])
    new_job(app, clock, OTHER)
    records = {record["slot"]: record["jobs"] for record in read("clock", "list") if record["slot"]}
    assert records == {str(slot_id(NEVER_SOON)): 2, str(slot_id(OTHER)): 1}
    shown = run("clock", "list").stdout
    assert "slot of 2 jobs" in shown
    assert re.search(r"slot of 1 job\b", shown)
    assert f"{2 + len(system_clock_jobs())} clock jobs." in shown


def test_jobs_are_added_shown_and_mended(app: Connection, clock: Clock, app_db: AppDatabase) -> None:
    added = read("jobs", "add", "--kind", "demo", "--org", "o", "--user", "u", "--schedule", NEVER_SOON)
    assert {str(job) for job in in_slots(app)} == {added["id"]}
    assert ", of its slot)" in run("jobs", "show", added["id"]).stdout
    assert read("jobs", "show", added["id"])["clock_job"]["schedule"] == NEVER_SOON
    with cron_as_superuser(app_db) as cron:
        cron.execute("update cron.job set command = 'select 1' where database = %s", [app_db.name])
        assert "DIFFERS" in run("jobs", "show", added["id"]).stdout
        cron.execute("delete from cron.job where database = %s", [app_db.name])
        assert "MISSING" in run("jobs", "show", added["id"]).stdout
        assert run("jobs", "resume", added["id"]).exit_code == 0
        assert ", of its slot)" in run("jobs", "show", added["id"]).stdout
        cron.execute("delete from cron.job where database = %s", [app_db.name])
        told = read("drift")
        assert [(line["slot"], line["drift"]) for line in told["left"]] == [(str(slot_id(NEVER_SOON)), "missing")]
        assert run("drift", "--fix").exit_code == 0
        assert len(clock_rows(cron, app_db.name)) == 1
    run("jobs", "pause", added["id"])
    assert "none, as it is paused" in run("jobs", "show", added["id"]).stdout
    assert run("clock", "clear", "--yes").exit_code == 0
    assert slot_schedules(clock) == []


def test_a_task_is_shown_with_its_slot(
    app: Connection, superuser: Connection, clock: Clock, app_db: AppDatabase
) -> None:
    make_task_effects(superuser)
    with task_worker(app_db, clock="slots"):
        task = add_task(app)
        settled(app, task)
    assert ", of its slot)" in run("tasks", "show", str(task)).stdout
    with cron_as_superuser(app_db) as cron:
        cron.execute("delete from cron.job where database = %s", [app_db.name])
    assert "MISSING: `sumaclock drift --fix` places it again" in " ".join(
        run("tasks", "show", str(task)).stdout.split()
    )


def test_slots_are_no_fault_of_the_clock(app: Connection, clock: Clock, app_db: AppDatabase) -> None:
    for schedule in (NEVER_SOON, OTHER):
        new_job(app, clock, schedule)
    with connect(app_db.cron_url, "test cron") as cron:
        signs = read_signs(app, cron)
    assert diagnose(signs) == []
    assert (signs.rows.jobs, signs.rows.stray, signs.rows.lost) == (2, 0, 0)


def test_a_mode_that_does_not_exist_is_refused(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMACLOCK_CLOCK", "slot")
    refused = run("clock", "list")
    assert refused.exit_code == 1
    assert "SUMACLOCK_CLOCK" in refused.stderr
