"""After a restore of one side alone, one sync makes drift zero."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from sumaclock_dagster.clock.jobs import change_job, delete_job
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection, connect, with_database
from sumaclock_dagster.reconcile.drift import count_by_kind, find_drift
from sumaclock_dagster.reconcile.sync import sync
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.reconcile import clock_rows, cron_as_superuser, new_job

OLD, NEW = "1 1 1 1 *", "2 2 2 2 *"


@pytest.fixture
def neighbour(cluster: TestCluster, app_db: AppDatabase) -> Iterator[AppDatabase]:
    """A second deployment in the same cluster, by the same roles, whose name begins like ours."""
    name = f"{app_db.name}x"
    try:
        yield make_app_database(cluster, name)
    finally:
        drop_app_database(cluster, name)


def pg(cluster: TestCluster, program: str, *arguments: str) -> None:
    done = subprocess.run([cluster.binaries.program(program), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def make_jobs(app: Connection, clock: Clock) -> tuple[UUID, UUID, UUID]:
    return new_job(app, clock, OLD), new_job(app, clock, OLD), new_job(app, clock, OLD)


def go_on(app: Connection, clock: Clock, jobs: tuple[UUID, UUID, UUID]) -> UUID:
    """What happens between the dump and the restore: one job is deleted, one changed, one stays, one comes."""
    delete_job(app, clock, jobs[0])
    change_job(app, clock, jobs[1], schedule=NEW)
    return new_job(app, clock, NEW)


def test_a_restore_of_the_app_database_alone(
    cluster: TestCluster, app_db: AppDatabase, neighbour: AppDatabase, tmp_path: Path
) -> None:
    dump = str(tmp_path / "app.dump")
    with connect(neighbour.app_url, "test neighbour") as app, open_clock(app, neighbour.cron_url) as clock:
        make_jobs(app, clock)
        clock.schedule(uuid4(), OLD)
    with connect(app_db.app_url, "test app") as app, open_clock(app, app_db.cron_url) as clock:
        jobs = make_jobs(app, clock)
        pg(cluster, "pg_dump", "--format=custom", "--create", f"--file={dump}", f"--dbname={app_db.superuser_url}")
        go_on(app, clock, jobs)
    with connect(cluster.file.superuser_url, "test restore") as superuser:
        superuser.execute(f'drop database "{app_db.name}" with (force)')
    pg(cluster, "pg_restore", "--create", f"--dbname={cluster.file.superuser_url}", dump)

    with (
        cron_as_superuser(app_db) as cron,
        connect(app_db.app_url, "test app") as app,
        open_clock(app, app_db.cron_url) as clock,
    ):
        theirs = clock_rows(cron, neighbour.name)
        assert count_by_kind(find_drift(app, clock)) == {"missing": 1, "orphan": 1, "schedule differs": 1}
        assert sync(app, clock).left == []
        assert find_drift(app, clock) == []
        assert {job.job_id: job.schedule for job in clock.listed()} == dict.fromkeys(jobs, OLD)
        assert clock_rows(cron, neighbour.name) == theirs
        assert len(theirs) == 4, "the neighbour's own orphan is the neighbour's own"


def test_a_restore_of_the_cron_database_alone(
    cluster: TestCluster, app_db: AppDatabase, app: Connection, tmp_path: Path
) -> None:
    dump = str(tmp_path / "cron.dump")
    cron_url = with_database(app_db.superuser_url, "postgres")
    with cron_as_superuser(app_db) as cron, open_clock(app, app_db.cron_url) as clock:
        jobs = make_jobs(app, clock)
        dumping = ["--format=custom", "--data-only", "--table=cron.job", f"--file={dump}", f"--dbname={cron_url}"]
        pg(cluster, "pg_dump", *dumping)
        new = go_on(app, clock, jobs)
        cron.execute("delete from cron.job")
        pg(cluster, "pg_restore", "--data-only", f"--dbname={cron_url}", dump)

        assert count_by_kind(find_drift(app, clock)) == {"missing": 1, "orphan": 1, "schedule differs": 1}
        assert sync(app, clock).left == []
        assert find_drift(app, clock) == []
        assert {job.job_id: job.schedule for job in clock.listed()} == {jobs[1]: NEW, jobs[2]: OLD, new: NEW}
