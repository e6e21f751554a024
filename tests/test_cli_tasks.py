"""`sumaclock tasks` on a real database with a real worker: what it prints, what it refuses, with which exit code."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result

from sumaclock_dagster.calendar import instant_at, parse_schedule, preview
from sumaclock_dagster.cli import task_answers
from sumaclock_dagster.cli.tasks import tasks
from sumaclock_dagster.clock.jobs import database_time
from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.tasks import api
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.tasks import WEEKLY, add_task, clock_schedule, fired, make_due, make_task_effects, settled, task_worker

MADRID = ZoneInfo("Europe/Madrid")
TASK_NAMES = [
    "id",
    "organization_id",
    "user_id",
    "kind",
    "title",
    "payload",
    "cron",
    "instant",
    "timezone",
    "words",
    "status",
    "status_reason",
    "next_run_at",
    "next_run_local",
    "last_scheduled_for",
    "cron_job_id",
    "deleted_at",
    "created_at",
    "updated_at",
]


@pytest.fixture(scope="module")
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    """One database and one worker for all: each test has its own tasks."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        made = make_app_database(cluster, name)
        with connect(made.superuser_url, "test superuser") as superuser:
            make_task_effects(superuser)
        with task_worker(made):
            yield made
    finally:
        drop_app_database(cluster, name)


@pytest.fixture
def idle(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppDatabase]:
    """A database that the commands see and that no worker looks at."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        made = make_app_database(cluster, name)
        monkeypatch.setenv("SUMACLOCK_DATABASE_URL", made.app_url)
        monkeypatch.setattr(task_answers, "SETTLED_SECONDS", 0.2)
        yield made
    finally:
        drop_app_database(cluster, name)


@pytest.fixture
def environment(app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", app_db.app_url)
    monkeypatch.setenv("SUMACLOCK_CRON_DATABASE_URL", app_db.cron_url)


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(
        tasks, [str(argument) for argument in arguments], input=stdin, prog_name="sumaclock tasks"
    )


def read(*arguments: object) -> Any:
    """The command's JSON; stdout holds nothing else."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def owned(*arguments: object, org: str = "acme") -> tuple[object, ...]:
    return ("add", "--kind", "effect", "--org", org, "--user", "ada", *arguments)


def parsed(text: str) -> datetime:
    return datetime.fromisoformat(text)


# ---- add


def test_add_waits_for_the_placing_and_shows_local_time_and_utc(
    app_db: AppDatabase, app: Connection, environment: None
) -> None:
    added = read(*owned("--cron", WEEKLY, "--title", "payments due", "--payload", '{"say": "ñ"}'))
    assert list(added) == TASK_NAMES
    task = api.get(app, uuid.UUID(added["id"]))
    assert (task.organization_id, task.user_id, task.kind, task.title) == ("acme", "ada", "effect", "payments due")
    assert (task.payload, task.cron, task.timezone) == ({"say": "ñ"}, WEEKLY, "Europe/Madrid")
    assert (added["status"], added["words"]) == ("active", "At 09:00, on Monday (Europe/Madrid)")
    local = parsed(added["next_run_local"])
    assert (local.strftime("%a %H:%M"), parsed(added["next_run_at"])) == ("Mon 09:00", task.next_run_at)
    assert local.utcoffset() == local.astimezone(MADRID).utcoffset()
    assert local == task.next_run_at

    said = run(*owned("--cron", WEEKLY, "--language", "es"))
    assert (said.exit_code, said.stderr) == (0, "")
    assert "A las 09:00, los lunes (Europe/Madrid)" in said.stdout
    assert f"Fires next: {local:%a %Y-%m-%d} 09:00 " in said.stdout
    assert f"= {task.next_run_at:%Y-%m-%d %H:%M} UTC" in said.stdout


def test_add_takes_a_moment_on_the_clocks_of_the_zone_or_with_an_offset(app: Connection, environment: None) -> None:
    year = database_time(app).year + 1
    for at, zone, expected in (
        (f"{year}-07-01 09:30", "Asia/Kathmandu", f"{year}-07-01T03:45:00.000000Z"),
        (f"{year}-07-01T09:30+02:00", "Asia/Kathmandu", f"{year}-07-01T07:30:00.000000Z"),
        (f"{year}-07-01T09:30Z", "Europe/Madrid", f"{year}-07-01T09:30:00.000000Z"),
    ):
        added = read(*owned("--at", at, "--timezone", zone))
        assert (added["instant"], added["next_run_at"], added["cron"]) == (expected, expected, None)
    assert "(Europe/Madrid, UTC+02:00)" in added["words"]


def test_an_instant_of_a_moment_ago_runs_at_once_and_add_says_so(app: Connection, environment: None) -> None:
    past = database_time(app).replace(second=0, microsecond=0) - timedelta(minutes=2)
    added = read(*owned("--at", past.isoformat()))
    assert (added["status"], parsed(added["last_scheduled_for"])) == ("done", past)
    assert "Does not fire: it is done, and fired last for" in run(*owned("--at", past.isoformat())).stdout


def test_what_only_the_worker_can_refuse_exits_with_1_and_the_reason(app: Connection, environment: None) -> None:
    past = database_time(app).replace(second=0, microsecond=0) - timedelta(minutes=2)
    arguments = ("add", "--kind", "nobody", "--org", "acme", "--user", "ada", "--at", past.isoformat())
    said = run(*arguments, "--json")
    assert said.exit_code == 1
    assert json.loads(said.stdout)["status"] == "failed"
    assert "Error: The task failed: No task kind 'nobody'" in said.stderr


def test_without_a_worker_add_says_so_and_the_task_is_there(idle: AppDatabase) -> None:
    said = run(*owned("--cron", WEEKLY))
    assert said.exit_code == 0
    assert "known as soon as a worker has placed it" in said.stdout
    assert "Not placed yet. No worker is alive" in said.stderr
    as_json = run(*owned("--cron", WEEKLY), "--json")
    assert json.loads(as_json.stdout)["next_run_at"] is None
    assert "No worker is alive" in as_json.stderr
    [first, second] = read("list")
    assert (first["status"], first["next_run_at"]) == ("active", None)
    assert "soon: to be placed" in run("list").stdout
    assert "known as soon as a worker has placed it" in run("preview", first["id"]).stdout
    ran = run("run", second["id"])
    assert (ran.exit_code, "is pending" in ran.stdout) == (0, True)
    assert "No worker is alive" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cron", "0 9 * * FRI-MON"], "day of week 'FRI-MON'"),
        (["--cron", "0 0 31 2 *"], "would never fire"),
        (["--cron", "0 9 * *"], "field"),
        (["--cron", WEEKLY, "--timezone", "Europe/Madird"], "'Europe/Madrid'"),
        (["--at", "2001-01-01 00:00"], "has passed"),
        (["--at", "2030-01-01 00:00:30"], "no minute that the clock can fire at"),
        (["--at", "2030-01-01T00:00:30Z"], "not on a whole minute"),
        (["--cron", WEEKLY, "--org", ""], "organization_id"),
        (["--cron", WEEKLY, "--kind", "two words"], "kind"),
        (["--cron", WEEKLY, "--payload", '"\\u0000"'], "payload contains a NUL"),
        (["--cron", WEEKLY, "--title", "bad \udcff byte"], "title contains a lone surrogate"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_a_rule_refuses_exits_with_1(idle: AppDatabase, arguments: list[str], words: str) -> None:
    result = run(*owned(*arguments))
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert read("list") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "--kind", "log"],
        [*map(str, owned())],
        [*map(str, owned("--cron", WEEKLY, "--at", "2030-01-01 00:00"))],
        [*map(str, owned("--at", "tomorrow"))],
        [*map(str, owned("--at", "2030-01-01"))],
        [*map(str, owned("--at", "2030-13-01 00:00"))],
        [*map(str, owned("--cron", WEEKLY, "--payload", "{not json"))],
        [*map(str, owned("--cron", WEEKLY, "--language", "fr"))],
        ["show", "not-a-uuid"],
        ["edit", str(uuid.UUID(int=7))],
        ["edit", str(uuid.UUID(int=7)), "--cron", WEEKLY, "--at", "2030-01-01 00:00"],
        ["list", "--limit", "0"],
        ["preview"],
        ["preview", str(uuid.UUID(int=7)), "--cron", WEEKLY],
        ["preview", str(uuid.UUID(int=7)), "--count", "11"],
        ["preview", "--cron", WEEKLY, "--at", "2030-01-01 00:00"],
        ["lost"],
    ],
    ids=lambda arguments: " ".join(arguments)[-40:],
)
def test_wrong_usage_exits_with_2(environment: None, arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr


# ---- looking at tasks


def test_list_filters_and_fits_100_columns(app: Connection, environment: None) -> None:
    org = f"list {'ñ' * 100}"
    weekly = read(*owned("--cron", WEEKLY, "--title", "t" * 300, org=org))
    paused = read(*owned("--cron", "0,10,20,30,40,50 1,3,5,7,9 1-31/2 JAN,MAR,MAY *", org=org))
    paused = read("pause", paused["id"], "--reason", "r" * 300)
    assert read("list", "--org", org) == [paused, weekly]
    assert read("list", "--org", org, "--status", "active", "--user", "ada", "--kind", "effect") == [weekly]
    assert read("list", "--org", org, "--kind", "other") == []
    assert "Only the newest 1" in run("list", "--org", org, "--limit", 1).stderr
    shown = run("list", "--org", org)
    assert max(map(len, shown.stdout.splitlines())) <= 100
    assert weekly["id"] in shown.stdout
    local = parsed(weekly["next_run_local"])
    assert f"{local:%Y-%m-%d} 09:00 {weekly['next_run_local'][16:]}" in shown.stdout
    assert f"{parsed(weekly['next_run_at']):%Y-%m-%d %H:%M} UTC" in shown.stdout
    for task in (weekly, paused):
        assert max(map(len, run("show", task["id"]).stdout.splitlines())) <= 100
    assert run("list", "--org", "nobody").stdout.startswith("No tasks.")


def test_show_tells_schedule_clock_job_occurrences_and_runs(
    app_db: AppDatabase, app: Connection, environment: None
) -> None:
    task_id = settled(app, add_task(app, title="shown")).id
    occurrence = make_due(app, task_id)
    fired(app, task_id)
    shown = read("show", task_id)
    assert list(shown) == [*TASK_NAMES, "clock_job", "clock_error", "upcoming", "last_runs"]
    assert shown["clock_job"]["schedule"] == clock_schedule(app_db, app, task_id)
    assert [parsed(line["at"]) for line in shown["upcoming"]] == [
        line.occurrence for line in preview(parse_schedule(WEEKLY), database_time(app), 5)
    ]
    [task_run] = shown["last_runs"]
    assert (parsed(task_run["scheduled_for"]), task_run["status"], task_run["trigger"]) == (occurrence, "done", "clock")
    assert 0 <= task_run["lateness_seconds"] < 120
    text = run("show", task_id).stdout
    assert "At 09:00, on Monday (Europe/Madrid)" in text
    assert "in place: '" in text
    assert f"{occurrence.astimezone(MADRID):%Y-%m-%d %H:%M}" in text
    with open_clock(app, app_db.cron_url) as clock:
        clock.unschedule(api.get(app, task_id).cron_job_id)
    assert "MISSING: `sumaclock tasks resume" in run("show", task_id).stdout
    assert run("resume", task_id).exit_code == 0
    settled(app, task_id)
    assert "in place" in run("show", task_id).stdout


def test_show_works_without_the_clock(app: Connection, environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    task_id = settled(app, add_task(app)).id
    monkeypatch.setenv("SUMACLOCK_CRON_DATABASE_URL", "postgresql://x@127.0.0.1:1/postgres")
    assert "Cannot connect" in read("show", task_id)["clock_error"]


# ---- changes


def test_edit_pause_resume_and_delete(app_db: AppDatabase, app: Connection, environment: None) -> None:
    task_id = uuid.UUID(read(*owned("--cron", WEEKLY))["id"])
    edited = read("edit", task_id, "--cron", "30 7 1 * *", "--timezone", "Asia/Tokyo", "--title", "monthly")
    assert (edited["cron"], edited["timezone"], edited["title"]) == ("30 7 1 * *", "Asia/Tokyo", "monthly")
    assert edited["next_run_local"].endswith("T07:30+09:00")
    year = database_time(app).year + 1
    moved = read("edit", task_id, "--at", f"{year}-01-02 10:00")
    assert (moved["cron"], moved["next_run_at"]) == (None, f"{year}-01-02T01:00:00.000000Z")
    assert read("edit", task_id, "--payload", "null", "--kind", "log")["payload"] is None

    paused = read("pause", task_id, "--reason", "on holiday")
    assert (paused["status"], paused["status_reason"], paused["next_run_at"]) == ("paused", "on holiday", None)
    assert "Does not fire: it is paused" in run("pause", task_id).stdout
    assert "Does not fire: it is paused" in run("preview", task_id).stdout
    assert read("resume", task_id)["next_run_at"] == moved["next_run_at"]

    for answer in ("n\n", ""):
        kept = run("delete", task_id, stdin=answer)
        assert (kept.exit_code, kept.stdout) == (1, "")
        assert f"Task {task_id} 'monthly' of kind 'log'" in kept.stderr
    assert api.get(app, task_id).deleted_at is None
    assert "is deleted; its task runs stay" in run("delete", task_id, stdin="y\n").stdout
    settled(app, task_id)
    assert clock_schedule(app_db, app, task_id) is None
    assert "never: it is deleted" in run("show", task_id).stdout
    assert str(task_id) in [task["id"] for task in read("list", "--deleted")]
    again = read(*owned("--cron", WEEKLY))["id"]
    assert read("delete", again, "--yes")["deleted_at"] is not None


def test_run_waits_for_the_end_and_tells_it(app: Connection, environment: None) -> None:
    task = settled(app, add_task(app, {"say": "now"}))
    ran = read("run", task.id)
    assert (ran["status"], ran["trigger"]) == ("done", "manual")
    assert "is done after" in run("run", task.id).stdout
    assert api.get(app, task.id).next_run_at == task.next_run_at
    failing = settled(app, add_task(app, {"break_sql": True}))
    api.update(app, failing.id, kind="nobody")
    failed = run("run", failing.id)
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert "No task kind 'nobody'" in failed.stderr


@pytest.mark.parametrize(
    "arguments",
    ["show", "edit --kind k", "edit --timezone UTC", "pause", "resume", "delete", "delete --yes", "run", "preview"],
)
def test_an_unknown_task_exits_with_1(environment: None, arguments: str) -> None:
    unknown = uuid.uuid4()
    command, *options = arguments.split()
    for extra in ([], ["--json"]):
        result = run(command, unknown, *options, *extra)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"Error: There is no task {unknown}" in result.stderr


# ---- preview


def test_preview_marks_what_a_clock_change_moves_without_any_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    night = ("--cron", "30 2 * * *", "--timezone", "Europe/Madrid", "--count", 3)
    spring = read("preview", *night, "--after", "2026-03-28 00:00")
    assert (spring["task_id"], spring["words"]) == (None, "At 02:30, every day (Europe/Madrid)")
    assert [line["local"] for line in spring["occurrences"]] == [
        "2026-03-28T02:30+01:00",
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]
    assert [bool(line["change"]) for line in spring["occurrences"]] == [False, True, False]
    text = run("preview", *night, "--after", "2026-10-24 00:00", "--language", "es").stdout
    assert "todos los días" in text
    assert "Sun 2026-10-25 02:30 +02:00" in text
    assert "2026-10-25 00:30" in text
    assert "twice" in text
    assert max(map(len, text.splitlines())) <= 100
    over = run("preview", "--at", "2026-01-01 09:00", "--after", "2026-01-01T09:00Z")
    assert "No occurrence after that moment." in over.stdout


def test_preview_of_a_task_is_what_it_is_placed_by(app: Connection, environment: None) -> None:
    task_id = settled(app, add_task(app)).id
    shown = read("preview", task_id, "--count", 3)
    assert shown["task_id"] == str(task_id)
    assert [parsed(line["at"]) for line in shown["occurrences"]] == [
        line.occurrence for line in api.preview(app, task_id, 3)
    ]
    from_now = read("preview", "--cron", WEEKLY, "--count", 3)
    assert from_now["occurrences"] == shown["occurrences"]


@pytest.mark.parametrize(
    ("wall", "zone", "utc"),
    [
        ("2026-12-03 09:00", "Europe/Madrid", "2026-12-03 08:00"),
        ("2026-03-29 02:30", "Europe/Madrid", "2026-03-29 01:00"),
        ("2026-10-25 02:30", "Europe/Madrid", "2026-10-25 00:30"),
        ("2011-12-30 12:00", "Pacific/Apia", "2011-12-30 10:00"),
        ("2028-02-29 00:00", "Pacific/Kiritimati", "2028-02-28 10:00"),
        ("2026-01-01 00:00", "Etc/GMT+12", "2026-01-01 12:00"),
    ],
)
def test_a_wall_clock_is_read_as_a_cron_would(wall: str, zone: str, utc: str) -> None:
    assert instant_at(parsed(wall), zone) == parsed(utc).replace(tzinfo=UTC)


def test_a_moment_that_no_clock_shows_is_refused() -> None:
    with pytest.raises(SumaclockError, match="do not show"):
        instant_at(datetime(9990, 1, 1), "Europe/Madrid")


def test_nobodys_text_reaches_the_terminal_as_control(app: Connection, environment: None) -> None:
    evil = "\x1b]0;pwned\x07\x1b[2J\u202e\x9b31m[red]x[/red]"
    task_id = add_task(app, {evil: evil}, organization_id=evil, user_id=evil, title=evil)
    settled(app, task_id)
    for arguments in (["list", "--org", evil], ["show", task_id], ["pause", task_id, "--reason", evil]):
        for extra in ([], ["--json"]):
            assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(run(*arguments, *extra).output)
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(run("delete", task_id, stdin="n\n").output)
