"""`sumaclock runs` on a real database, `tail` as a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from sumaclock_dagster.cli.runs import runs
from sumaclock_dagster.clock.jobs import create_job
from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import Connection
from sumaclock_dagster.queue.ends import Ends
from sumaclock_dagster.queue.runs import fire, retry_run
from tests.conftest import AppDatabase
from tests.waiting import until

RUN_NAMES = [
    "id",
    "job_id",
    "kind",
    "organization_id",
    "user_id",
    "status",
    "trigger",
    "scheduled_at",
    "due_at",
    "started_at",
    "finished_at",
    "lateness_seconds",
    "duration_seconds",
    "attempts",
    "lost",
    "worker_id",
    "dagster_run_id",
    "result",
    "error",
]
END = """
update sumaclock.cron_runs
set status = %(status)s, scheduled_at = '2026-01-15 12:30Z', started_at = '2026-01-15 12:30:00.25Z',
    finished_at = %(finished)s, attempts = 1, claimed_by = 7, result = %(result)s, error = %(error)s,
    dagster_run_id = '00000000-0000-0000-0000-00000000000d'
where id = %(id)s
"""


@pytest.fixture
def job(app: Connection, app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch) -> UUID:
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", app_db.app_url)
    monkeypatch.setenv("SUMACLOCK_CRON_DATABASE_URL", app_db.cron_url)
    return add_job(app, app_db)


def add_job(app: Connection, app_db: AppDatabase, kind: str = "demo", organization: str = "acme") -> UUID:
    with open_clock(app, app_db.cron_url) as clock:
        return create_job(
            app,
            clock,
            kind=kind,
            organization_id=organization,
            user_id="ana",
            payload={},
            schedule="0 0 1 1 *",
            enabled=False,
        ).id


def end(
    app: Connection,
    run_id: int,
    status: str = "done",
    result: Any = None,
    error: str | None = None,
    finished: str = "2026-01-15 12:30:02.75Z",
) -> None:
    stored = None if result is None else json.dumps(result)
    app.execute(END, {"id": run_id, "status": status, "result": stored, "error": error, "finished": finished})


def run(*arguments: object) -> Result:
    return CliRunner().invoke(runs, [str(argument) for argument in arguments], prog_name="sumaclock runs")


def read(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_show_prints_stable_names_and_iso_times(app: Connection, job: UUID) -> None:
    run_id = fire(app, job)
    pending = read("show", run_id)
    assert list(pending) == RUN_NAMES
    assert (pending["status"], pending["started_at"], pending["lateness_seconds"]) == ("pending", None, None)
    end(app, run_id, result={"a": 1})
    shown = read("show", run_id)
    assert list(shown) == RUN_NAMES
    assert shown["scheduled_at"] == "2026-01-15T12:30:00.000000Z"
    assert shown["started_at"] == "2026-01-15T12:30:00.250000Z"
    assert (shown["lateness_seconds"], shown["duration_seconds"]) == (0.25, 2.5)
    assert (shown["worker_id"], shown["attempts"], shown["result"], shown["error"]) == (7, 1, {"a": 1}, None)
    assert shown["dagster_run_id"] == "00000000-0000-0000-0000-00000000000d"


def test_show_tells_people_both_times_and_the_whole_error(app: Connection, job: UUID) -> None:
    run_id = fire(app, job)
    end(app, run_id, "failed", error="ValueError: too big\n\n  File x, line 1\n" + "y" * 300)
    shown = run("show", run_id, "--tz", "Europe/Madrid").stdout
    assert "2026-01-15 12:30:00 UTC = 2026-01-15 13:30:00 CET" in shown
    assert "late by 250 ms" in shown
    assert "took 2.5 s" in shown
    assert "File x, line 1" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_list_filters_newest_first(app: Connection, app_db: AppDatabase, job: UUID) -> None:
    other = add_job(app, app_db, kind="other", organization="globex")
    ids = [fire(app, job), fire(app, other), fire(app, job)]
    end(app, ids[0], "failed", error="E")
    assert [found["id"] for found in read("list")] == ids[::-1]
    assert [found["id"] for found in read("list", "--status", "failed")] == [ids[0]]
    assert [found["id"] for found in read("list", "--job", job)] == [ids[2], ids[0]]
    assert [found["id"] for found in read("list", "--kind", "other")] == [ids[1]]
    assert [found["id"] for found in read("list", "--org", "globex")] == [ids[1]]
    assert [found["id"] for found in read("list", "--limit", 1)] == [ids[2]]
    assert "Only the newest 1" in run("list", "--limit", 1).stderr


def test_the_table_fits_100_columns(app: Connection, app_db: AppDatabase, job: UUID) -> None:
    long = add_job(app, app_db, kind="k" * 100, organization="ñ" * 200)
    for owner in (job, long):
        for status, error in (("done", None), ("failed", "E" * 500), ("skipped", "The job is paused.")):
            end(app, fire(app, owner), status, error=error)
        fire(app, owner)
    shown = run("list", "--tz", "Europe/Madrid")
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 100
    assert "2026-01-15 12:30 UTC" in shown.stdout
    assert "2026-01-15 13:30 CET" in shown.stdout
    assert "250 ms" in shown.stdout


def test_retry_puts_a_failed_run_back(app: Connection, job: UUID) -> None:
    run_id, pending = fire(app, job), fire(app, job)
    end(app, run_id, "failed", error="E")
    again = read("retry", run_id)
    assert (again["id"], again["status"], again["attempts"]) == (run_id, "pending", 0)
    refused = run("retry", pending)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "only a failed or skipped run" in refused.stderr
    end(app, run_id, "skipped", error="E")
    assert f"Run {run_id} is pending again" in run("retry", run_id).stdout


@pytest.mark.parametrize("command", ["show", "retry"])
def test_an_unknown_run_exits_with_1(job: UUID, command: str) -> None:
    for extra in ([], ["--json"]):
        result = run(command, 999, *extra)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "There is no run 999" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "x"],
        ["show", "0"],
        ["show", str(2**63)],
        ["list", "--status", "lost"],
        ["list", "--job", "1"],
        ["tail", "x"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_database_out_of_reach_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", "postgresql://ana:geheim@127.0.0.1:1/d")
    for command in (["list"], ["tail"], ["show", "1"]):
        result = run(*command)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "Cannot connect" in result.stderr
        assert "geheim" not in result.output


# ---- following ----


def test_ends_are_told_once_in_their_order(app: Connection, superuser: Connection, job: UUID) -> None:
    before = [fire(app, job) for _ in range(4)]
    end(app, before[0])
    ends = Ends(app)
    assert ends.look() == []
    end(app, before[2])
    end(app, before[1], "failed", error="E")
    assert {told.id for told in ends.look()} == {before[1], before[2]}
    assert ends.look() == []

    quick = fire(app, job)
    end(app, quick, "skipped", error="E")
    assert [told.id for told in ends.look()] == [quick], "it began and ended between two looks"

    with superuser.transaction():
        late = fire(superuser, job)
        overtaking = fire(app, job)
        end(app, overtaking)
        assert [told.id for told in ends.look()] == [overtaking]
        end(superuser, late)
    assert [told.id for told in ends.look()] == [late], "its id is lower and its commit came later"

    retry_run(app, quick)
    assert ends.look() == []
    end(app, quick, "failed", error="E")
    assert [told.id for told in ends.look()] == [quick], "a retried run ends again"
    retry_run(app, quick)
    end(app, quick, finished="2026-01-15 12:30:03Z")
    assert [told.id for told in ends.look()] == [quick], "and so it does between two looks"
    assert ends.look() == []


def test_ends_of_runs_far_below_the_newest_are_told(app: Connection, job: UUID) -> None:
    pending, running, retried = (fire(app, job) for _ in range(3))
    end(app, retried, "failed", error="E")
    app.execute("update sumaclock.cron_runs set status = 'running', claimed_by = 1, attempts = 1, started_at = now(),"
                " heartbeat_at = now() where id = %s", [running])  # fmt: skip
    many = "insert into sumaclock.cron_runs (job_id) select %s from generate_series(1, 1500)"
    app.execute(many, [job])
    ends = Ends(app)
    retry_run(app, retried)
    assert ends.look() == []
    for run_id in (pending, running, retried):
        end(app, run_id)
    assert {told.id for told in ends.look()} == {pending, running, retried}
    assert ends.look() == []


class Tail:
    """`sumaclock runs tail` as a process."""

    def __init__(self, *arguments: str) -> None:
        code = "from sumaclock_dagster.cli.runs import runs; runs()"
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "tail", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stderr is not None
        assert "Following runs" in self.process.stderr.readline()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def interrupt(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=30)
        return self.process.returncode, rest


@pytest.fixture
def tails() -> Iterator[list[Tail]]:
    started: list[Tail] = []
    yield started
    for tail in started:
        tail.process.kill()
        tail.process.communicate()


def test_tail_follows_runs_until_ctrl_c(app: Connection, app_db: AppDatabase, job: UUID, tails: list[Tail]) -> None:
    other = add_job(app, app_db, kind="other")
    ended_before = fire(app, job)
    end(app, ended_before)
    pending_before = fire(app, job)
    tails += [Tail("--json"), Tail("--tz", "Europe/Madrid", "--kind", "other")]
    as_json, for_people = tails

    end(app, pending_before, "failed", error="E\ntrace")
    first = json.loads(as_json.line())
    assert (first["id"], first["status"], list(first)) == (pending_before, "failed", RUN_NAMES)

    foreign = fire(app, other)
    end(app, foreign, "failed", error="E" * 300)
    assert json.loads(as_json.line())["id"] == foreign
    line = for_people.line().rstrip("\n")
    assert f"run {foreign} " in line
    assert "failed" in line
    assert "late 250 ms, took 2.5 s" in line
    assert len(line) <= 100

    for tail in tails:
        assert tail.interrupt() == (0, ""), "every end is told once, and Ctrl-C is no error"


def test_tail_ends_with_1_when_the_database_goes(
    app: Connection, superuser: Connection, job: UUID, tails: list[Tail]
) -> None:
    tails.append(Tail("--json"))
    sessions = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'sumaclock cli'"
    until(lambda: superuser.execute(sessions).fetchall(), what="tail's session")
    _, error = tails[0].process.communicate(timeout=30)
    assert tails[0].process.returncode == 1
    assert error.startswith("Error: PostgreSQL refused: ")
