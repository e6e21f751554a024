"""`sumaclock once` on a real database, and the assets of one-off commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from sumaclock_dagster.cli.once import once
from sumaclock_dagster.db import Connection
from sumaclock_dagster.definitions import build
from tests.conftest import AppDatabase
from tests.once import failed, note_runners, queue, queued, run_due


@pytest.fixture(autouse=True)
def _environment(app_db: AppDatabase, app: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", app_db.app_url)
    monkeypatch.setenv("SUMACLOCK_CRON_DATABASE_URL", app_db.cron_url)
    note_runners(app)


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(once, [str(argument) for argument in arguments], input=stdin, prog_name="sumaclock once")


def read(*arguments: object) -> Any:
    """The command's JSON; stdout holds nothing else."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_add_list_cancel_errors_retry(app_db: AppDatabase, app: Connection) -> None:
    added = read(
        "add",
        "select 1 / 0",
        "--max-attempts",
        1,
        "--priority",
        7,
        "--timeout",
        90,
        "--dedup-key",
        "k",
        "--note",
        "why",
    )
    assert list(added) == ["jobid", "warnings"]
    jobid = added["jobid"]
    later = read("add", "select 2", "--run-after", "2999-01-01T00:00:00")["jobid"]
    first, second = read("list")
    assert (first["jobid"], first["state"], first["priority"], first["max_attempts"]) == (jobid, "due", 7, 1)
    assert (first["timeout_seconds"], first["dedup_key"], first["note"]) == (90, "k", "why")
    assert (second["jobid"], second["state"], second["due_at"]) == (later, "delayed", "2999-01-01T00:00:00.000000Z")
    assert "select 1 / 0" in run("list").stdout
    assert "Only the newest 1" in run("list", "--limit", 1).stderr
    assert read("cancel", later) == {"jobid": later, "became": "removed"}
    run_due(app_db.app_url)
    [error] = read("errors")
    assert (error["jobid"], error["sqlstate"], error["message"]) == (jobid, "22012", "division by zero")
    shown = run("errors")
    assert "division by zero" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 100
    again = read("retry", jobid)
    assert again["was"] == jobid
    assert queued(app) == [again["jobid"]]
    assert f"Command {again['jobid']} is removed" in run("cancel", again["jobid"]).stdout
    assert "No command waits" in run("list").stdout


def test_a_command_comes_from_a_file_or_stdin(app: Connection, tmp_path: Path) -> None:
    file = tmp_path / "command.sql"
    file.write_text("select 'ñ'", encoding="utf-8")
    read("add", f"@{file}")
    assert run("add", "-", stdin="select 'stdin'").exit_code == 0
    assert [entry["command"] for entry in read("list")] == ["select 'ñ'", "select 'stdin'"]
    assert run("add", f"@{tmp_path / 'none.sql'}").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "vacuum"], "once add --direct"),
        (["add", ""], "command takes 1 to"),
        (["add", "a\x00b"], "cannot store"),
        (["add", "select 1", "--dedup-key", "k" * 201], "dedup_key takes 1 to 200"),
        (["cancel", "77"], "No command 77 of yours is queued"),
        (["retry", "77"], "No command 77 of yours has failed"),
    ],
)
def test_what_a_rule_refuses_exits_with_1(app: Connection, arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert queued(app) == []


def test_a_warning_goes_to_stderr(superuser: Connection, app: Connection) -> None:
    superuser.execute("update sumaclock.job_runners set enabled_at = now() - interval '1 hour'")
    result = run("add", "select 1")
    assert (result.exit_code, len(queued(app))) == (0, 1)
    assert "Warning: The command is queued, but no runner" in result.stderr
    assert "no runner" in read("add", "select 1")["warnings"][0]


def test_direct_takes_no_options(app: Connection) -> None:
    assert run("add", "--direct", "vacuum", "--priority", 1).exit_code == 2
    assert "fires once at" in run("add", "--direct", "vacuum").stdout
    assert "vacuum" in run("list", "--direct").stdout
    assert queued(app) == []


def materialise(app_db: AppDatabase) -> tuple[dict[str, dict[str, Any]], dict[str, dg.AssetCheckEvaluation]]:
    job = build(app_db.settings).resolve_job_def("report_commands")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance)
    assert result.success
    told = {}
    for asset in ("job_queue", "job_errors"):
        [event] = result.asset_materializations_for_node(asset)
        told[asset] = {name: value.value for name, value in event.metadata.items()}
    return told, {check.check_name: check for check in result.get_asset_check_evaluations()}


def test_the_assets_show_the_queue_and_their_checks_say_what_to_do(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    told, checks = materialise(app_db)
    assert (told["job_queue"]["due"], told["job_errors"]["failed in 24 h"]) == (0, 0)
    assert all(check.passed for check in checks.values())

    queue(app, "select 1 / 0", max_attempts=1, note="a note")
    run_due(app_db.app_url)
    queue(app, "select 2")
    queue(app, "select 3", run_after="2999-01-01 00:00Z")
    superuser.execute(
        "update sumaclock.job_queue set due_at = due_at - interval '3 minutes' where command = 'select 2'"
    )
    superuser.execute("update sumaclock.job_runners set enabled_at = now() - interval '3 minutes', looked_at = null")
    told, checks = materialise(app_db)
    assert (told["job_queue"]["due"], told["job_queue"]["waiting for their time"]) == (1, 1)
    assert [record.data["SQL"] for record in told["job_queue"]["commands of the app role"].records] == [
        "select 2",
        "select 3",
    ]
    [role] = told["job_queue"]["by role"].records
    assert (role.data["role"], role.data["runners"], role.data["failed in 24 h"]) == ("sumaclock_app", 4, 1)
    [error] = told["job_errors"]["newest of the app role"].records
    assert (error.data["SQLSTATE"], error.data["error"], error.data["note"]) == ("22012", "division by zero", "a note")
    assert [name for name, check in checks.items() if not check.passed] == [
        "commands_are_looked_for",
        "no_command_failed",
    ]
    assert "sumaclock once enable" in str(checks["commands_are_looked_for"].description)
    assert "sumaclock once retry" in str(checks["no_command_failed"].description)
    assert {check.severity for check in checks.values()} == {dg.AssetCheckSeverity.WARN}

    superuser.execute("update sumaclock.job_runners set looked_at = now()")
    _, checks = materialise(app_db)
    assert checks["commands_are_looked_for"].passed


def test_a_role_that_never_got_runners_is_silent_to_the_check(
    app_db: AppDatabase, app: Connection, superuser: Connection
) -> None:
    queue(app, "select 1")
    app.execute("select sumaclock.note_runners(current_user, 0)")
    superuser.execute("update sumaclock.job_queue set due_at = now() - interval '3 minutes'")
    _, checks = materialise(app_db)
    assert not checks["commands_are_looked_for"].passed


def test_the_sensor_renews_the_assets_when_something_failed(app_db: AppDatabase, app: Connection) -> None:
    definitions = build(app_db.settings)
    sensor = definitions.resolve_sensor_def("commands_changed")
    resource = definitions.resources["sumaclock"]

    def look(cursor: str | None) -> tuple[bool, str | None]:
        with dg.build_sensor_context(cursor=cursor, resources={"sumaclock": resource}) as context:
            data = sensor.evaluate_tick(context)
            return bool(data.run_requests), data.cursor

    assert look(None) == (False, None)
    jobid = queue(app, "select 1 / 0", max_attempts=1)
    asked, cursor = look(None)
    assert asked
    assert look(cursor)[0] is False
    run_due(app_db.app_url)
    assert failed(app, jobid)
    asked, cursor = look(cursor)
    assert asked
    assert look(cursor)[0] is False
    assert look("what a hand wrote")[0]
