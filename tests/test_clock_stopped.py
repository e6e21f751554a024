"""The clock is really stopped for thirteen minutes, in which tasks and a job are due: each fires once, late, with the
reason. The server lives thirteen minutes in the past until it is stopped, and comes back today."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sumaclock_dagster.calendar import pg_cron_for
from sumaclock_dagster.clock.jobs import database_time
from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import connect
from sumaclock_dagster.embedded.binaries import find_binaries
from sumaclock_dagster.reconcile import heartbeat
from sumaclock_dagster.reconcile.reasons import why_late, why_missed
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import TaskStatus
from tests.conftest import TestCluster, make_app_database, new_cluster, new_home, remove_cluster
from tests.faults import faketime_library, start_server
from tests.reconcile import cron_as_superuser, new_job, silent_since
from tests.tasks import add_task, clock_schedule, make_task_effects, settled, task_effects, task_worker
from tests.workers import await_ended

STOPPED = timedelta(minutes=13)
# Minutes after the beginning at which something is due; the clock must be stopped before the first.
DUE = (3, 4, 5, 7)
RETENTION = 30


@pytest.mark.database
def test_rule_9_what_was_due_while_the_clock_was_stopped_fires_once_late_with_the_reason() -> None:
    library = faketime_library()
    if library is None:
        pytest.skip("libfaketime, which sets a server's clock without touching the machine's, is not installed")
    past = {
        "LD_PRELOAD": library,
        "FAKETIME": f"-{STOPPED.total_seconds():.0f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    private = new_cluster(new_home())
    try:
        file = private.start()
        private.stop()
        start_server(Path(file.data_dir), private.home, file.superuser_url, past)
        cluster = TestCluster(private, private.home, file, find_binaries(Path(file.bin_dir)))
        app_db = make_app_database(cluster, "stopped")
        with connect(app_db.superuser_url, "test superuser") as superuser:
            make_task_effects(superuser)
        with (
            connect(app_db.app_url, "test place") as app,
            open_clock(app, app_db.cron_url) as clock,
            task_worker(app_db),
        ):
            began = database_time(app).replace(second=0, microsecond=0)
            minutes = [began + timedelta(minutes=ahead) for ahead in DUE]
            every = [add_task(app, cron=f"{at.minute} {at.hour} * * *", timezone="UTC") for at in minutes[:2]]
            once = [add_task(app, instant=at) for at in minutes[2:]]
            due = dict(zip([*every, *once], minutes, strict=True))
            for task, at in due.items():
                assert settled(app, task, 60).next_run_at == at
                assert clock_schedule(app_db, app, task) == pg_cron_for(at)
            job = new_job(app, clock, f"{minutes[1].minute} {minutes[1].hour} * * *")
            assert database_time(app) < minutes[0], "the machine was too slow to stop the clock in time"
        private.stop()
        private.start()

        with connect(app_db.app_url, "test late") as app, open_clock(app, app_db.cron_url) as clock:
            assert database_time(app) - began >= STOPPED
            done, again = heartbeat.beat(app, RETENTION), heartbeat.beat(app, RETENTION)
            assert {task.task_id: task.scheduled_at for task in done.tasks} == due
            assert [(missed.job_id, missed.scheduled_at) for missed in done.jobs] == [(job, minutes[1])]
            assert (again.tasks, again.jobs) == ([], [])
            assert max(task.late_seconds for task in done.tasks) >= 600, "ten minutes and more"
            reason = silent_since(app, minutes[0])
            assert reason.startswith("PostgreSQL was started at")
            assert why_late(app, clock, done.tasks) == dict.fromkeys(due, reason)
            assert why_missed(app, done.jobs) == {job: reason}
            with task_worker(app_db):
                await_ended(app, [task.run_id for task in done.tasks], 60)
                for task, at in due.items():
                    settled(app, task, 60)
                    assert task_effects(app, task) == [(at, "heartbeat")], "once, for the minute that was meant"
            assert [api.get(app, task).next_run_at for task in every] == [
                due[task] + timedelta(days=1) for task in every
            ]
            assert {api.get(app, task).status for task in once} == {TaskStatus.DONE}
            with cron_as_superuser(app_db) as cron:
                fired = "select count(*) from cron.job_run_details where database = 'stopped'"
                assert cron.execute(fired).fetchone() == (0,), "pg_cron itself fired none of them"
    finally:
        remove_cluster(private)
