"""`sumaclock jobs` on a real database: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner, Result

from sumaclock_dagster.cli.jobs import jobs
from sumaclock_dagster.clock.jobs import create_job, database_time, get_job, list_jobs
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection
from sumaclock_dagster.queue.runs import fire, list_runs
from sumaclock_dagster.raw_schedule import next_utc
from tests.conftest import AppDatabase

FAR = "0 0 1 1 *"
JOB_NAMES = [
    "id",
    "kind",
    "organization_id",
    "user_id",
    "payload",
    "schedule",
    "enabled",
    "catch_up",
    "overlap",
    "created_at",
    "updated_at",
    "next_firing_at",
]


@pytest.fixture
def environment(app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", app_db.app_url)
    monkeypatch.setenv("SUMACLOCK_CRON_DATABASE_URL", app_db.cron_url)


@pytest.fixture
def clock(app: Connection, app_db: AppDatabase, environment: None) -> Clock:
    return open_clock(app, app_db.cron_url)


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(jobs, [str(argument) for argument in arguments], input=stdin, prog_name="sumaclock jobs")


def read(*arguments: object) -> Any:
    """The command's JSON; stdout holds nothing else."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def add(*arguments: object, schedule: str = FAR) -> Any:
    return read("add", "--kind", "demo", "--org", "acme", "--user", "ana", "--schedule", schedule, *arguments)


def placed(clock: Clock) -> dict[str, str]:
    return {str(found.job_id): found.schedule for found in clock.listed()}


def test_add_creates_row_and_clock_job_and_prints_stable_names(app: Connection, clock: Clock) -> None:
    added = add("--payload", '{"a": [1, null]}')
    assert list(added) == JOB_NAMES
    job = get_job(app, UUID(added["id"]))
    assert (job.kind, job.organization_id, job.user_id) == ("demo", "acme", "ana")
    assert (job.payload, job.schedule, job.enabled) == ({"a": [1, None]}, FAR, True)
    assert (added["payload"], added["schedule"], added["enabled"]) == ({"a": [1, None]}, FAR, True)
    assert placed(clock) == {added["id"]: FAR}
    now = database_time(app)
    assert parsed(added["next_firing_at"]) == next_utc(FAR, now)
    assert parsed(added["created_at"]) == job.created_at


def parsed(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def test_add_takes_an_id_a_file_and_a_paused_start(app: Connection, clock: Clock, tmp_path: Any) -> None:
    job_id = uuid4()
    file = tmp_path / "payload.json"
    file.write_text('{"from": "file ñ"}', encoding="utf-8")
    added = add("--id", job_id, "--paused", "--payload", f"@{file}")
    assert (added["id"], added["enabled"], added["next_firing_at"]) == (str(job_id), False, None)
    assert get_job(app, job_id).payload == {"from": "file ñ"}
    assert placed(clock) == {}
    piped = run("edit", job_id, "--payload", "-", stdin="[1, 2]")
    assert piped.exit_code == 0
    assert get_job(app, job_id).payload == [1, 2]


def test_list_filters_and_prints_json(clock: Clock) -> None:
    first, second = add(), add("--paused")
    assert read("list") == [second, first]
    assert read("list", "--enabled") == [first]
    assert read("list", "--paused") == [second]
    assert read("list", "--org", "acme", "--kind", "demo", "--limit", 1) == [second]
    assert read("list", "--org", "other") == []
    assert "Only the newest 1" in run("list", "--limit", 1).stderr


def test_tables_fit_100_columns_and_show_both_times(app: Connection, clock: Clock) -> None:
    create_job(
        app,
        clock,
        kind="k" * 100,
        organization_id="ñ" * 200,
        user_id="u" * 200,
        payload={"long": "x" * 300},
        schedule="0,10,20,30,40,50 1,3,5,7,9,11,13 1-31/2 JAN,MAR,MAY *",
    )
    winter = add(schedule="30 12 15 1 *")
    shown = run("list", "--tz", "Europe/Madrid")
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 100
    assert winter["id"] in shown.stdout
    assert "-01-15 12:30 UTC" in shown.stdout
    assert "-01-15 13:30 CET" in shown.stdout
    summer = add(schedule="30 12 15 7 *")
    assert "14:30:00 CEST" in run("show", summer["id"], "--tz", "Europe/Madrid").stdout
    for job in list_jobs(app):
        details = run("show", job.id, "--tz", "Asia/Kathmandu")
        assert details.exit_code == 0
        assert max(map(len, details.stdout.splitlines())) <= 100
        assert "+0545" in details.stdout


def test_show_tells_the_clock_job_and_the_last_runs(app: Connection, clock: Clock) -> None:
    job_id = add()["id"]
    runs = [fire(app, UUID(job_id)) for _ in range(7)]
    shown = read("show", job_id)
    assert list(shown) == [*JOB_NAMES, "clock_job", "clock_error", "last_runs"]
    assert shown["clock_job"]["schedule"] == FAR
    assert shown["clock_job"]["active"] is True
    assert [entry["id"] for entry in shown["last_runs"]] == runs[:1:-1]
    assert "in place" in run("show", job_id).stdout
    clock.unschedule(UUID(job_id))
    assert "MISSING" in run("show", job_id).stdout
    assert read("show", job_id)["clock_job"] is None
    run("resume", job_id)
    clock.schedule(UUID(job_id), "1 1 1 1 *")
    assert "DIFFERS" in run("show", job_id).stdout
    app.execute("update sumaclock.cron_jobs set enabled = false")
    assert "LEFT OVER" in run("show", job_id).stdout


def test_show_works_without_the_clock(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = add()["id"]
    monkeypatch.setenv("SUMACLOCK_CRON_DATABASE_URL", "postgresql://x@127.0.0.1:1/postgres")
    shown = read("show", job_id)
    assert (shown["id"], shown["clock_job"]) == (job_id, None)
    assert "Cannot connect" in shown["clock_error"]


def test_edit_pause_and_resume_change_row_and_clock_job(app: Connection, clock: Clock) -> None:
    job_id = add()["id"]
    assert read("edit", job_id, "--schedule", "5 4 1 1 *")["schedule"] == "5 4 1 1 *"
    assert placed(clock) == {job_id: "5 4 1 1 *"}
    assert read("edit", job_id, "--kind", "other", "--payload", "null")["payload"] is None
    assert get_job(app, UUID(job_id)).kind == "other"
    assert read("pause", job_id)["enabled"] is False
    assert placed(clock) == {}
    assert "does not fire" in run("pause", job_id).stdout
    assert read("resume", job_id)["enabled"] is True
    assert placed(clock) == {job_id: "5 4 1 1 *"}
    assert "fires next at" in run("resume", job_id).stdout


def test_fire_writes_a_pending_run(app: Connection, clock: Clock) -> None:
    job_id = add("--paused")["id"]
    fired = read("fire", job_id)
    [stored] = list_runs(app)
    assert (fired["id"], fired["job_id"], fired["status"], fired["trigger"]) == (stored.id, job_id, "pending", "manual")
    assert f"Run {stored.id + 1} is pending" in run("fire", job_id).stdout


def test_delete_names_what_goes_and_asks(app: Connection, clock: Clock) -> None:
    job_id = add()["id"]
    for _ in range(3):
        fire(app, UUID(job_id))
    for answer in ("n\n", ""):
        kept = run("delete", job_id, stdin=answer)
        assert kept.exit_code == 1
        assert job_id in kept.stderr
        assert "'demo'" in kept.stderr
        assert "3 runs (3 pending)" in kept.stderr
        assert kept.stdout == ""
    assert placed(clock) == {job_id: FAR}
    gone = run("delete", job_id, stdin="y\n")
    assert gone.exit_code == 0
    assert "3 runs (3 pending)" in gone.stdout
    assert (list_jobs(app), placed(clock)) == ([], {})


def test_delete_with_yes_prints_counts_as_json(clock: Clock) -> None:
    job_id = add()["id"]
    runs = {"pending": 0, "running": 0, "done": 0, "failed": 0, "skipped": 0}
    assert read("delete", job_id, "--yes") == {"id": job_id, "deleted": True, "runs": runs}
    assert placed(clock) == {}


@pytest.mark.parametrize(
    "arguments",
    [["show"], ["edit", "--kind", "k"], ["pause"], ["resume"], ["delete"], ["delete", "--yes"], ["fire"]],
    ids=" ".join,
)
def test_an_unknown_job_exits_with_1(environment: None, arguments: list[str]) -> None:
    unknown = uuid4()
    for extra in ([], ["--json"]):
        result = run(arguments[0], unknown, *arguments[1:], *extra)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"Error: There is no job {unknown}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--schedule", "0 9 * * FRI-MON"], "day of week 'FRI-MON'"),
        (["--schedule", "@daily"], "write '0 0 * * *'"),
        (["--kind", "two words"], "kind must be 1 to 100"),
        (["--org", ""], "organization id must have 1 to 200"),
        (["--payload", "NaN"], "payload is nan"),
        (["--payload", '"\\u0000"'], "payload contains a NUL"),
        (["--payload", '{"a": "\\ud800"}'], "lone surrogate"),
        (["--org", "bad \udcff byte"], "organization id contains a lone surrogate"),
    ],
)
def test_what_a_rule_refuses_exits_with_1(app: Connection, clock: Clock, arguments: list[str], words: str) -> None:
    base = {"--kind": "demo", "--org": "acme", "--user": "ana", "--schedule": FAR}
    base[arguments[0]] = arguments[1]
    result = run("add", *(word for pair in base.items() for word in pair))
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert list_jobs(app) == []
    assert placed(clock) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "--kind", "demo"],
        ["add", "--kind", "k", "--org", "o", "--user", "u", "--schedule", FAR, "--payload", "{not json"],
        ["add", "--kind", "k", "--org", "o", "--user", "u", "--schedule", FAR, "--payload", "@/no/such/file"],
        ["add", "--kind", "k", "--org", "o", "--user", "u", "--schedule", FAR, "--payload", "[" * 100_000],
        ["show", "not-a-uuid"],
        ["edit", str(UUID(int=7))],
        ["list", "--limit", "0"],
        ["list", "--tz", "Mars/Phobos"],
        ["list", "--tz", "../../etc/passwd"],
        ["lost"],
    ],
    ids=lambda arguments: " ".join(arguments)[-40:],
)
def test_wrong_usage_exits_with_2(environment: None, arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://ana:geheim@127.0.0.1:1/d", "Cannot connect to database 'd' at 127.0.0.1 (port 1) as role 'ana'"),
        ("postgresql://ana:ge@heim@127.0.0.1/d", "SUMACLOCK_DATABASE_URL is not a PostgreSQL URL"),
        ("geheim", "SUMACLOCK_DATABASE_URL is not a PostgreSQL URL"),
    ],
)
def test_a_database_out_of_reach_exits_with_1_and_shows_no_password(
    monkeypatch: pytest.MonkeyPatch, url: str, words: str
) -> None:
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", url)
    result = run("list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert "heim" not in result.output


def test_no_database_at_all_exits_with_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("SUMACLOCK_HOME", str(tmp_path))
    result = run("list")
    assert result.exit_code == 1
    assert "SUMACLOCK_DATABASE_URL" in result.stderr


def test_a_wrong_setting_exits_with_1_and_names_it(environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMACLOCK_CLAIM_BATCH", "many")
    result = run("list")
    assert result.exit_code == 1
    assert "SUMACLOCK_CLAIM_BATCH" in result.stderr


def test_a_database_without_tables_exits_with_1(app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", app_db.cron_url)
    for arguments in (["list"], ["fire", str(uuid4())]):
        result = run(*arguments)
        assert result.exit_code == 1
        assert "sumaclock migrate" in result.stderr


def test_nobodys_text_reaches_the_terminal_as_control(app: Connection, clock: Clock) -> None:
    evil = "\x1b]0;pwned\x07\x1b[2J\u202e\x9b31m[red]x[/red]"
    job = create_job(
        app, clock, kind="k", organization_id=evil, user_id=evil, payload={evil: evil}, schedule=FAR, enabled=False
    )
    for arguments in (["list"], ["show", job.id], ["list", "--json"], ["show", job.id, "--json"], ["delete", job.id]):
        shown = run(*arguments).output
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown)
    assert read("show", job.id)["payload"] == {evil: evil}
