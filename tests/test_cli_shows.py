"""`up` and `down` for programs: one JSON object a line."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner

from sumaclock_dagster.cli.main import main
from sumaclock_dagster.cli.shows import JsonLines
from sumaclock_dagster.model import Run, RunStatus, RunTrigger

AT = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)


def a_run() -> Run:
    return Run(
        id=7,
        job_id=uuid4(),
        kind="demo",
        organization_id="acme",
        user_id="ada",
        status=RunStatus.DONE,
        trigger=RunTrigger.CLOCK,
        scheduled_at=AT,
        due_at=AT,
        started_at=AT + timedelta(seconds=0.25),
        finished_at=AT + timedelta(seconds=1),
        attempts=1,
        lost=0,
        result={"ñ": 1},
        error=None,
        claimed_by=3,
        dagster_run_id=None,
    )


def test_every_line_is_an_object_that_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show = JsonLines()
    with show.step("PostgreSQL"):
        show.say("\n  starting\n")
    show.say("")
    show.ready("http://127.0.0.1:3000", Path("logs"))
    show.run(a_run())
    note, step, ready, run = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert note == {"event": "note", "text": "starting"}
    assert (step["event"], step["step"]) == ("step", "PostgreSQL")
    assert step["seconds"] >= 0
    assert ready == {"event": "ready", "address": "http://127.0.0.1:3000", "logs": "logs"}
    assert (run["event"], run["id"], run["status"], run["result"]) == ("run", 7, "done", {"ñ": 1})
    assert (run["scheduled_at"], run["lateness_seconds"]) == ("2026-11-30T09:00:00.000000Z", 0.25)


def test_a_step_that_fails_is_not_told_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no"), JsonLines().step("PostgreSQL"):
        raise ValueError("no")
    assert capsys.readouterr().out == ""


def test_down_where_nothing_runs(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["down", "--json", "--home", str(tmp_path / "none")])
    assert result.exit_code == 0
    assert json.loads(result.output) == {"event": "note", "text": f"Nothing runs in {tmp_path / 'none'}."}
