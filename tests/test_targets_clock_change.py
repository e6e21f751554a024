"""A weekly report over the change of clocks: PostgreSQL's own clock stands where the week is, and pg_cron fires."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from sumaclock_dagster.db import connect
from sumaclock_dagster.model import RunStatus
from sumaclock_dagster.queue.runs import list_runs
from sumaclock_dagster.tasks import api
from tests.conftest import TestCluster, new_cluster, new_home, remove_cluster
from tests.faults import faketime_library, start_server
from tests.target_stack import ELSEWHERE, PATIENCE_SECONDS, TargetStack, target_stack
from tests.tasks import add_task, settled
from tests.waiting import until

LAUNCHER = "select pid from pg_stat_activity where application_name = 'pg_cron scheduler'"
MADRID = ZoneInfo("Europe/Madrid")


def mondays_of_a_change() -> tuple[datetime, datetime]:
    """Nine o'clock in Madrid on the Mondays before and after its clocks change next, in UTC.

    In the future: a launcher that PostgreSQL 15 starts anew keeps the machine's time where the faked one is earlier.
    """
    nine = datetime.now(MADRID).replace(hour=9, minute=0, second=0, microsecond=0)
    monday = nine + timedelta(days=7 - nine.weekday())
    while monday.utcoffset() == (monday + timedelta(days=7)).utcoffset():
        monday += timedelta(days=7)
    return monday.astimezone(UTC), (monday + timedelta(days=7)).astimezone(UTC)


class FakedClock:
    """The clock of a server, which goes on from wherever it is set."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def set(self, moment: datetime, seconds: float = 0.0) -> None:
        self.file.write_text(f"{moment.timestamp() + seconds - time.time():+.3f}")


@pytest.fixture(scope="module")
def elsewhen(cluster: TestCluster) -> Iterator[tuple[TestCluster, FakedClock]]:
    """A cluster whose clock can be set."""
    library = faketime_library()
    if library is None:
        pytest.skip("libfaketime, which sets a server's clock without touching the machine's, is not installed")
    home = new_home()
    private = new_cluster(home)
    clock = FakedClock(home / "offset")
    try:
        file = private.start()
        private.stop(fast_seconds=10)
        clock.set(mondays_of_a_change()[0], -7200)
        faked = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(clock.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        start_server(Path(file.data_dir), home, file.superuser_url, faked)
        _start_launcher_anew(file.superuser_url)
        yield TestCluster(private, home, file, cluster.binaries), clock
    finally:
        remove_cluster(private)


def _start_launcher_anew(superuser_url: str) -> None:
    """What PostgreSQL 15 starts from a signal handler, as its first launcher, escapes libfaketime; the next do not."""
    with connect(superuser_url, "test") as superuser:
        first = until(lambda: superuser.execute(LAUNCHER).fetchone(), 60, "the first launcher", 0.1)
        superuser.execute("select cron.schedule('crash', '0 0 29 2 *', 'select')")
        superuser.execute("update cron.job set username = 'nobody'")
        until(lambda: superuser.execute(LAUNCHER).fetchone() != first, 60, "a crash of the first launcher", 0.1)
        superuser.execute("delete from cron.job")
        until(lambda: superuser.execute(LAUNCHER).fetchone(), 60, "the next launcher", 0.1)


@pytest.mark.timeout(900)
def test_a_weekly_report_in_madrid_time_fires_at_nine_before_and_after_the_clocks_change(
    cluster: TestCluster, elsewhen: tuple[TestCluster, FakedClock]
) -> None:
    here = {"assets": ["weekly_report"], "partition_key": "{organization_id}|{scheduled_local-7d:%Y-%m-%d}"}
    there = {"assets": ["churn"], "location": ELSEWHERE, "partition_key": "{title} {scheduled_local-7d:%Y-%m-%d}"}
    names = ("code_server", "other_code_server", "webserver", "forker", "daemon", "worker")
    app_cluster, clock = elsewhen
    mondays = mondays_of_a_change()
    assert sorted(f"{monday:%H:%M}" for monday in mondays) == ["07:00", "08:00"]
    # Dagster's events are of the machine's time, so that all of them seem old.
    patient = {"SUMACLOCK_DAGSTER_LOST_SECONDS": "86400"}
    with target_stack(cluster, *names, lean=True, app_cluster=app_cluster, variables=patient) as stack:
        clock.set(mondays[0], -100)
        tasks = [
            add_task(stack.app, payload, kind="dagster", title="Acme", cron="0 9 * * MON", timezone="Europe/Madrid")
            for payload in (here, there)
        ]

        for occurrence in mondays:
            for task in tasks:
                assert settled(stack.app, task, PATIENCE_SECONDS).next_run_at == occurrence
            clock.set(occurrence, -8)
            # A week is longer than a worker's life.
            stack.kill("worker")
            stack.start("worker")
            for task in tasks:
                _ends(stack, task, occurrence)

        weeks = {f"{monday - timedelta(days=7):%Y-%m-%d}" for monday in mondays}
        for asset, start in (("weekly_report", "acme|"), ("churn", "Acme ")):
            materialized = stack.instance.get_materialized_partitions(dg.AssetKey(asset))
            assert materialized == {start + week for week in weeks}
        for task in tasks:
            fired = list_runs(stack.app, job_id=api.get(stack.app, task).cron_job_id)
            assert sorted(run.scheduled_at for run in fired if run.trigger.value == "clock") == list(mondays)
            runs = api.list_task_runs(stack.app, task)
            assert sorted((one.scheduled_for, one.status) for one in runs) == [(monday, "done") for monday in mondays]


def _ends(stack: TargetStack, task: UUID, occurrence: datetime) -> None:
    """The run that pg_cron fires for it ends well."""

    def fired() -> bool:
        runs = list_runs(stack.app, job_id=api.get(stack.app, task).cron_job_id)
        ended = [
            run for run in runs if run.trigger.value == "clock" and run.finished_at and run.scheduled_at == occurrence
        ]
        assert {run.status for run in ended} <= {RunStatus.DONE}, ended
        return bool(ended)

    stack.until(lambda: fired() or None, f"a firing at {occurrence}")
