"""The clock is really stopped across a minute at which tasks and a job are due: each fires once, late, with the reason.

The heartbeat's threshold is three minutes, which another test holds; here it is a second, so that one minute is enough.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sumaclock_dagster.calendar import pg_cron_for
from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import connect, with_database
from sumaclock_dagster.embedded.binaries import find_binaries
from sumaclock_dagster.reconcile import heartbeat
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import TaskStatus
from tests.conftest import TestCluster, make_app_database, new_cluster, new_home, remove_cluster
from tests.reconcile import new_job
from tests.tasks import add_task, clock_schedule, make_task_effects, settled, task_effects, task_worker
from tests.waiting import until
from tests.workers import await_ended

# Time to place the tasks and stop the cluster before their minute.
AHEAD_SECONDS = 15


@pytest.mark.firing
def test_rule_9_what_was_due_while_the_clock_was_stopped_fires_once_late_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    private = new_cluster(new_home())
    try:
        file = private.start()
        app_db = make_app_database(
            TestCluster(private, private.home, file, find_binaries(Path(file.bin_dir))), "stopped"
        )
        with connect(app_db.superuser_url, "test superuser") as superuser:
            make_task_effects(superuser)
        with connect(app_db.app_url, "test place") as app, task_worker(app_db):
            minute = _a_minute_ahead()
            daily = add_task(app, cron=f"{minute.minute} {minute.hour} * * *", timezone="UTC")
            instant = add_task(app, instant=minute)
            for task in (daily, instant):
                assert settled(app, task).next_run_at == minute
                assert clock_schedule(app_db, app, task) == pg_cron_for(minute)
            with open_clock(app, app_db.cron_url) as clock:
                job = new_job(app, clock, f"{minute.minute} {minute.hour} * * *")
        assert datetime.now(UTC) < minute, "the machine was too slow to stop the clock in time"
        private.stop()
        until(lambda: datetime.now(UTC) > minute + timedelta(seconds=3), 100, "the minute to pass", poll_seconds=0.2)
        private.start()

        monkeypatch.setattr(heartbeat, "LATE_SECONDS", 1)
        with connect(app_db.app_url, "test late") as app, open_clock(app, app_db.cron_url) as clock:
            done = heartbeat.beat(app, 30)
            reasons = heartbeat.why_late(app, clock, done.tasks)
            again = heartbeat.beat(app, 30)
            assert {task.task_id for task in done.tasks} == {daily, instant}
            assert {task.scheduled_at for task in done.tasks} == {minute}
            assert min(task.late_seconds for task in done.tasks) > 3
            assert set(reasons.values()) == {
                "Its clock job did not fire, or its firing failed: see `sumaclock doctor`."
            }
            assert [(missed.job_id, missed.scheduled_at) for missed in done.jobs] == [(job, minute)]
            assert (again.tasks, again.jobs) == ([], [])
            with task_worker(app_db):
                await_ended(app, [task.run_id for task in done.tasks], 30)
                for task in (daily, instant):
                    settled(app, task)
                    assert task_effects(app, task) == [(minute, "heartbeat")], "once, for the minute that was meant"
                assert api.get(app, daily).next_run_at == minute + timedelta(days=1)
                assert api.get(app, instant).status == TaskStatus.DONE
            with connect(with_database(app_db.superuser_url, "postgres"), "test look") as cron:
                fired = "select count(*) from cron.job_run_details where database = 'stopped'"
                assert cron.execute(fired).fetchone() == (0,), "pg_cron itself fired none of them"
    finally:
        remove_cluster(private)


def _a_minute_ahead() -> datetime:
    """The beginning of a minute (UTC) that is at least AHEAD_SECONDS away."""
    ahead = datetime.now(UTC) + timedelta(seconds=AHEAD_SECONDS)
    return ahead.replace(second=0, microsecond=0) + timedelta(minutes=1)
