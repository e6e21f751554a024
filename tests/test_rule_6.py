"""Rule 6: the database's clock rules; a worker's own may be an hour off."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sumaclock_dagster
from sumaclock_dagster.db import Connection
from sumaclock_dagster.queue import runs, workers
from tests import serving, worker_process
from tests.conftest import AppDatabase
from tests.workers import FAST, add_job, add_runs, await_ended, effects, make_effects

PACKAGE = Path(sumaclock_dagster.__file__).parent
CORE = ("calendar", "clock", "outbox", "queue", "reconcile", "reports", "tasks", "worker")
# What tells the time of day. Monotonic clocks measure durations only and are welcome.
WALL_CLOCKS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}


def wall_clocks(source: str) -> list[str]:
    return [
        f"{node.value.id}.{node.attr} in line {node.lineno}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in WALL_CLOCKS
    ] + [
        f"import of {alias.name} in line {node.lineno}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
        if alias.name in ("time", "time_ns")
    ]


def test_rule_6_the_look_for_wall_clocks_finds_them() -> None:
    assert wall_clocks("import time\ntime.time()\n") == ["time.time in line 2"]
    assert wall_clocks("from time import time\n") == ["import of time in line 1"]
    assert wall_clocks("from datetime import datetime\ndatetime.now()\n") == ["datetime.now in line 2"]
    assert wall_clocks("from time import monotonic\nmonotonic()\n") == []


@pytest.mark.parametrize("package", CORE)
def test_rule_6_the_core_reads_no_wall_clock(package: str) -> None:
    files = sorted((PACKAGE / package).rglob("*.py"))
    assert files
    assert {str(file.relative_to(PACKAGE)): found for file in files if (found := wall_clocks(file.read_text()))} == {}


@pytest.mark.parametrize("shift_seconds", [3600, -3600])
def test_rule_6_a_workers_own_clock_may_be_an_hour_off(
    app_db: AppDatabase, app: Connection, superuser: Connection, shift_seconds: int
) -> None:
    make_effects(superuser)
    process = serving.start(worker_process, app_db.app_url, **FAST, clock_shift_seconds=shift_seconds)
    try:
        later = app.execute(
            "insert into sumaclock.cron_runs (job_id, due_at) values (%s, now() + interval '30 minutes') returning id",
            [add_job(app, "effect")],
        ).fetchone()
        assert later is not None
        due = add_runs(app, add_job(app, "effect"), 3)
        await_ended(app, due)
        assert workers.release_stale(app, app_db.settings.model_copy(update=FAST)) == workers.Released(0, 0)
        off = "select max(abs(extract(epoch from now() - started_at))) from sumaclock.cron_runs where id = any(%s)"
        worst = app.execute(off, [due]).fetchone()
        assert worst is not None
        assert worst[0] < 60
        assert effects(app) == dict.fromkeys(due, 1)
        assert runs.get_run(app, later[0]).attempts == 0
    finally:
        process.kill()
        process.wait()
