"""Many launches at once: limits for each organisation hold, and whoever is killed, each is launched once."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from uuid import UUID

import dagster as dg
import pytest

from sumaclock_dagster.clock.jobs import create_job
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.model import RunStatus
from sumaclock_dagster.queue.runs import fire, get_run, list_runs
from tests.conftest import TestCluster
from tests.target_stack import FORKED, TargetStack, add_target_job, target_stack

NOTHING_BEGINS = {
    "run_coordinator": {
        "module": "dagster._core.run_coordinator.queued_run_coordinator",
        "class": "QueuedRunCoordinator",
        "config": {"max_concurrent_runs": 0, "dequeue_interval_seconds": 1},
    },
    "concurrency": {},
}
EXECUTED = 20
KILLED = ("daemon", "code_server", "worker")


@pytest.mark.firing
@pytest.mark.timeout(600)
def test_fifty_due_in_one_minute_run_two_at_once_for_each_organisation(cluster: TestCluster) -> None:
    """With the dagster.yaml that users get. Whether two overlapped is read from Dagster's own records."""
    payload = {"job": "invoice", "run_config": {"ops": {"work_for": {"config": {"seconds": 0.2}}}}}
    with target_stack(cluster, "code_server", "forker", "daemon", "worker", lean=True) as stack:
        organizations = ["acme", "beta", "gamma", "delta", "omega"]
        minute = _minute_to_come(stack)
        with Clock(stack.db.cron_url, stack.db.name) as clock:
            jobs = [_schedule(stack, clock, minute, name, payload) for name in organizations * 10]

        runs = [stack.ended(_fired(stack, job), 240) for job in jobs]

        assert {run.status for run in runs} == {RunStatus.DONE}, {run.error for run in runs}
        assert {(run.trigger.value, f"{run.scheduled_at:%M %H %d %m}") for run in runs} == {("clock", minute)}
        records = list(stack.instance.get_run_records(dg.RunsFilter(job_name="invoice")))
        assert len(records) == 50
        assert max(_most_at_once(records, organization) for organization in organizations) == 2


def _minute_to_come(stack: TargetStack) -> str:
    """A minute that leaves time to make 50 clock jobs: "minute hour day month" in UTC, two digits each."""
    row = stack.app.execute(
        "select to_char(now() at time zone 'UTC' + interval '80 seconds', 'MI HH24 DD MM')"
    ).fetchone()
    assert row is not None
    return str(row[0])


def _schedule(stack: TargetStack, clock: Clock, minute: str, organization: str, payload: dict[str, Any]) -> UUID:
    return create_job(
        stack.app,
        clock,
        kind="dagster",
        organization_id=organization,
        user_id="ada",
        payload=payload,
        schedule=" ".join(str(int(field)) for field in minute.split()) + " *",
    ).id


def _fired(stack: TargetStack, job: UUID) -> int:
    return stack.until(lambda: list_runs(stack.app, job_id=job), f"a firing of {job}")[0].id


def _most_at_once(records: list[dg.RunRecord], organization: str) -> int:
    times = [
        (record.start_time, record.end_time)
        for record in records
        if record.dagster_run.tags["sumaclock/organization"] == organization
    ]
    moments = sorted([(start or 0, 1) for start, _ in times] + [(end or 0, -1) for _, end in times])
    now = most = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


@pytest.mark.timeout(900)
def test_whoever_is_killed_each_of_two_hundred_is_launched_once(cluster: TestCluster) -> None:
    """Dagster's queue lets none begin, so that all are there to be counted. Then some run, and the others are canceled,
    so that it takes no minutes; each run takes the outcome of its own."""
    dice = random.Random(6)
    with target_stack(cluster, "code_server", "daemon", "worker", lean=True, yaml_changes=NOTHING_BEGINS) as stack:
        jobs = [add_target_job(stack.app, {"job": "invoice"}), add_target_job(stack.app, WEEKLY)]
        fired: list[int] = []
        for _ in range(10):
            with stack.app.transaction():
                fired += [fire(stack.app, jobs[number % 2]) for number in range(20)]
            before = len(_launched(stack))
            stack.until(lambda before=before: len(_launched(stack)) > before, "a launch")
            victim = dice.choice(KILLED)
            stack.kill(victim)
            stack.start(victim)

        stack.until(lambda: len(_launched(stack)) >= 200 and _all_linked(stack, fired), "all of them", 400)

        tags = Counter(run.tags["sumaclock/run"] for run in _launched(stack))
        assert len(_launched(stack)) == 200, [tag for tag, count in tags.items() if count > 1]
        assert set(tags) == {str(run_id) for run_id in fired}
        for run_id in fired:
            run = get_run(stack.app, run_id)
            assert (run.status, run.claimed_by) == (RunStatus.RUNNING, -1)
            assert str(run.dagster_run_id) == stack.dagster_run(run_id).run_id

        executed = set(dice.sample(fired, EXECUTED))
        for dagster_run in _launched(stack):
            if int(dagster_run.tags["sumaclock/run"]) not in executed:
                stack.instance.report_run_canceled(dagster_run)
        stack.configure({"run_launcher": FORKED, "concurrency": {}})
        stack.kill("daemon")
        stack.start("forker")
        stack.start("daemon")
        for run_id in fired:
            run = stack.ended(run_id)
            dagster_run = stack.dagster_run(run_id)
            assert str(run.dagster_run_id) == dagster_run.run_id
            expected = ("done", "SUCCESS") if run_id in executed else ("failed", "CANCELED")
            assert (run.status.value, dagster_run.status.value) == expected, run.error
        assert len(_launched(stack)) == 200


WEEKLY = {"assets": ["weekly_report"], "partition_key": "{organization_id}|2026-10-19"}


def _launched(stack: TargetStack) -> list[dg.DagsterRun]:
    return list(stack.instance.get_runs())


def _all_linked(stack: TargetStack, fired: list[int]) -> bool:
    row = stack.app.execute(
        "select count(*) from sumaclock.dagster_launches where state = 'launched' and cron_run_id = any(%s)", [fired]
    ).fetchone()
    return row == (len(fired),)
