"""A whole `sumaclock up` whose jobs and tasks fire by slots."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sumaclock_dagster.db import connect
from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.embedded.ground import DEMO_JOB
from sumaclock_dagster.model import RunStatus, RunTrigger
from sumaclock_dagster.queue.runs import list_runs
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.waiting import await_placed
from tests.conftest import new_home, remove_cluster
from tests.slots import in_slots
from tests.test_up import answers
from tests.up_stack import Up, state, sumaclock
from tests.waiting import until

pytestmark = [pytest.mark.stack, pytest.mark.firing]

# The next minute that is far enough away for a task to be placed on it.
SOON = "select date_trunc('minute', now() + interval '10 seconds') + interval '1 minute'"
CREATE = """select sumaclock.create_task(
    organization_id => 'acme', user_id => 'ana', kind => 'log', title => 'By its slot', instant => %s)"""


@pytest.fixture
def home() -> Iterator[Path]:
    folder = new_home()
    yield folder
    sumaclock("down", "--home", str(folder))
    remove_cluster(PrivateCluster(folder))


def read(home: Path, *arguments: str) -> Any:
    done = sumaclock(*arguments, "--json", SUMACLOCK_HOME=str(home), SUMACLOCK_CLOCK="slots")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(400)
def test_a_stack_from_nothing_fires_by_slots(home: Path) -> None:
    up = Up(home, SUMACLOCK_CLOCK="slots", SUMACLOCK_GRACE_SECONDS="1")
    try:
        up.wait_for("Each run shows here when it has ended:")
        assert answers(state(home).address)
        with connect(Settings(home=home).app_url, "test up slots") as app:
            moment = app.execute(SOON).fetchone()
            assert moment is not None
            created = app.execute(CREATE, moment).fetchone()
            assert created is not None
            task = await_placed(app, created[0], 60)
            # A task's clock job follows when its row is committed.
            until(lambda: {DEMO_JOB, task.cron_job_id} <= in_slots(app), 60)

            # Each schedule has its slot, and nothing has a clock job of its own.
            listed = read(home, "clock", "list")
            slots = {record["schedule"]: record["jobs"] for record in listed if record["slot"]}
            assert slots["* * * * *"] == 1
            assert f"{moment[0]:%-M %-H %-d %-m} *" in slots
            assert not [record for record in listed if record["job_id"]]
            assert read(home, "drift")["left"] == []

            # Both fire on their minute, and people see it.
            up.wait_for("demo, organization demo,", 180)
            run = until(
                lambda: [
                    run
                    for run in list_runs(app, job_id=task.cron_job_id)
                    if run.trigger is RunTrigger.CLOCK and run.finished_at
                ],
                180,
                f"a firing of the task by its slot; {up.output}",
            )[-1]
            assert run.status is RunStatus.DONE, run.error
            assert run.scheduled_at == moment[0]
            (task_run,) = api.list_task_runs(app, task.id)
            assert (task_run.scheduled_for, task_run.status) == (moment[0], "done")
            assert read(home, "drift")["left"] == []
    finally:
        with suppress(ProcessLookupError):
            assert up.end() == 0, up.output
