"""Faults of the clock in a whole running stack: the check in Dagster names each within two minutes, and their end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sumaclock_dagster.clock.faults import FaultKind
from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import Connection, connect, with_database
from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.embedded.configuration import APP_DATABASE, DAGSTER_DATABASE, read_cluster_file
from tests.conftest import new_home
from tests.faults import TOLD_SECONDS
from tests.reconcile import NEVER_SOON, new_job
from tests.up_stack import Up, postgres_of
from tests.waiting import until


@pytest.fixture
def home(_plain_environment: None) -> Iterator[Path]:
    """A stack without jobs, up and watched."""
    folder = new_home()
    stack = Up(folder, "--no-demo")
    try:
        until(lambda: (folder / "up.json").exists() and read_cluster_file(folder) is not None, 120, "the stack", 0.5)
        yield folder
    finally:
        if stack.process.poll() is None:
            stack.end()
        if postgres_of(folder):
            PrivateCluster(folder).stop(fast_seconds=10)
        shutil.rmtree(folder, ignore_errors=True)


def newest_check(storage: Connection) -> str:
    """The newest evaluation of clock_faults, as Dagster keeps it: its outcome and text."""
    row = storage.execute(
        "select execution_status || evaluation_event from asset_check_executions"
        " where check_name = 'clock_faults' and evaluation_event is not null order by id desc limit 1"
    ).fetchone()
    return str(row[0]) if row else ""


def test_faults_one_after_another_and_their_end_are_told_within_two_minutes_each(home: Path) -> None:
    file = read_cluster_file(home)
    assert file is not None
    with (
        connect(file.superuser_url, "test") as superuser,
        connect(with_database(file.superuser_url, APP_DATABASE), "test") as in_app,
        connect(with_database(file.superuser_url, DAGSTER_DATABASE), "test") as storage,
    ):
        until(
            lambda: storage.execute("select to_regclass('asset_check_executions')").fetchone() != (None,),
            120,
            "Dagster's tables",
            0.5,
        )
        until(lambda: newest_check(storage).startswith("SUCCEEDED"), 180, "a first evaluation that passes", 0.5)

        def told(*faults: FaultKind) -> str:
            """The newest evaluation, once it fails with these faults and no others."""
            names = f'"{", ".join(faults)}"'
            return until(
                lambda: (found := newest_check(storage)).startswith("FAILED") and names in found and found,
                TOLD_SECONDS,
                names,
                0.5,
            )

        superuser.execute(
            "insert into cron.job (schedule, command, database, username, nodename, nodeport)"
            " values (%s, 'select', 'postgres', 'nobody_here', 'localhost', 5432)",
            [NEVER_SOON],
        )
        assert "delete from cron.job" in told(FaultKind.LAUNCHER_CRASHES)

        superuser.execute("delete from cron.job where username = 'nobody_here'")
        in_app.execute("revoke insert on sumaclock.cron_runs from sumaclock_app")
        assert "grant insert on sumaclock.cron_runs" in told(FaultKind.PRIVILEGE_MISSING)

        in_app.execute("grant insert on sumaclock.cron_runs to sumaclock_app")
        with connect(file.database_url, "test") as app, open_clock(app, file.cron_database_url) as clock:
            new_job(app, clock)
        # One that is never due: connecting there would keep pg_cron waiting.
        superuser.execute("update cron.job set nodename = 'old.primary' where schedule = %s", [NEVER_SOON])
        assert "sumaclock drift --fix" in told(FaultKind.FIRES_ELSEWHERE)

        superuser.execute("delete from cron.job where nodename = 'old.primary'")
        until(lambda: newest_check(storage).startswith("SUCCEEDED"), TOLD_SECONDS, "their end", 0.5)
