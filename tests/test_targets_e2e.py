"""Jobs and assets of users as targets: real pg_cron, worker, sensors, daemon, code servers and webserver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from sumaclock_dagster.model import RunStatus
from sumaclock_dagster.queue.runs import fire, get_run, list_runs
from sumaclock_dagster.tasks import api
from tests.conftest import TestCluster
from tests.target_stack import ELSEWHERE, PATIENCE_SECONDS, TargetStack, add_target_job, target_stack
from tests.tasks import add_task, settled

UNKNOWN = "DagsterUnknownPartitionError: Could not find a partition with key `acme`."
ALL = ("code_server", "other_code_server", "webserver", "daemon")


@pytest.fixture(scope="module")
def stack(cluster: TestCluster) -> Iterator[TargetStack]:
    with target_stack(cluster, *ALL) as running:
        yield running


def in_a_minute(stack: TargetStack) -> str:
    """A weekly cron whose next occurrence in Madrid is 80 to 140 seconds away, so that it is placed in time."""
    row = stack.app.execute(
        "select to_char(t, 'FMMI FMHH24 * * '), extract(dow from t)::int"
        " from (select (now() + interval '140 seconds') at time zone 'Europe/Madrid' as t) s"
    ).fetchone()
    assert row is not None
    return f"{row[0]}{row[1]}"


def materialized(stack: TargetStack, asset: str) -> set[str]:
    return set(stack.instance.get_materialized_partitions(dg.AssetKey(asset)))


@pytest.mark.timeout(600)
def test_a_daily_report_in_madrid_time_materialises_its_partition_by_a_real_firing(stack: TargetStack) -> None:
    """`test_targets_clock_change` has the weekly one, over the change of clocks and in another code location."""
    daily = {
        "assets": ["daily_report"],
        "partition_key": "{scheduled_local-1d:%Y-%m-%d}",
        "run_config": {"ops": {"daily_report": {"config": {"customer": "{title}"}}}},
    }
    task = add_task(
        stack.app, daily, kind="dagster", title="Acme Ltd", cron=in_a_minute(stack), timezone="Europe/Madrid"
    )
    due = settled(stack.app, task, PATIENCE_SECONDS).next_run_at
    assert due is not None

    job = api.get(stack.app, task).cron_job_id
    fired = stack.until(
        lambda: [run for run in list_runs(stack.app, job_id=job) if run.trigger.value == "clock"], "a firing"
    )
    run = stack.ended(fired[-1].id)

    assert run.status is RunStatus.DONE, run.error
    madrid = stack.app.execute(
        "select to_char((%s at time zone 'Europe/Madrid') - interval '1 day', 'YYYY-MM-DD')", [due]
    ).fetchone()
    assert madrid is not None
    assert materialized(stack, "daily_report") == {madrid[0]}
    dagster_run = stack.dagster_run(run.id)
    assert str(run.dagster_run_id) == dagster_run.run_id
    assert (
        dagster_run.tags.items()
        >= {
            "sumaclock/run": str(run.id),
            "sumaclock/job": str(job),
            "sumaclock/task": str(task),
            "sumaclock/organization": "acme",
            "sumaclock/scheduled_for": f"{due:%Y-%m-%dT%H:%MZ}",
            "dagster/partition": madrid[0],
        }.items()
    )
    assert dagster_run.run_config["ops"]["daily_report"]["config"] == {"customer": "Acme Ltd"}


def test_jobs_and_assets_of_another_code_location_are_launched(stack: TargetStack) -> None:
    config = {"ops": {"write": {"config": {"month": "{scheduled_for:%Y-%m}"}}}}
    churn = {"assets": ["churn"], "location": ELSEWHERE, "partition_key": "{organization_id}"}
    export = {"job": "export", "location": ELSEWHERE, "run_config": config, "tags": {"team": "sales"}}
    bills = {"job": "bills", "location": ELSEWHERE, "partition_key": "{organization_id}"}
    named = {**bills, "dynamic_partitions": {"billed": "{organization_id}"}}
    good = [fire(stack.app, add_target_job(stack.app, payload, "omega")) for payload in (churn, export, named)]
    bad = {
        fire(stack.app, add_target_job(stack.app, payload)): said
        for payload, said in (
            ({"job": "nothing", "location": ELSEWHERE}, "nothing"),
            ({"job": "export", "location": ELSEWHERE}, "write"),
            ({"job": "export", "location": "nowhere"}, "nowhere"),
            ({"assets": ["no_such"], "location": ELSEWHERE}, "no_such"),
            (bills, f"{UNKNOWN} job bills in elsewhere has no such partition. Where its partitions are dynamic, name"),
            ({**bills, "job": "export"}, UNKNOWN),
        )
    }

    runs = [stack.ended(run_id) for run_id in good]
    assert [run.status for run in runs] == [RunStatus.DONE] * 3, [run.error for run in runs]
    assert stack.instance.get_dynamic_partitions("billed") == ["omega"], "a job of ops, whose definition is named"
    assert stack.dagster_run(good[2]).tags["dagster/partition"] == "omega"
    assert "omega" in materialized(stack, "churn")
    exported = stack.dagster_run(good[1])
    assert exported.tags["team"] == "sales"
    assert exported.run_config["ops"]["write"]["config"]["month"] == f"{runs[1].scheduled_at:%Y-%m}"
    assert str(runs[1].dagster_run_id) == exported.run_id
    for run_id, said in bad.items():
        run = stack.ended(run_id)
        assert run.status is RunStatus.FAILED
        assert said in str(run.error), run.error


BAD: list[tuple[dict[str, Any], str]] = [
    ({"job": "nothing"}, "DagsterInvariantViolationError: Could not find job 'nothing'"),
    ({"job": "report_failures"}, "Expected one of"),
    ({"assets": ["no/such"]}, "no/such"),
    ({"job": "invoice", "run_config": {"ops": {"other": {}}}}, "DagsterInvalidConfigError: Error in config for job"),
    ({"job": "invoice", "partition_key": "2026"}, "no PartitionsDefinition"),
    (
        {"assets": ["daily_report"], "partition_key": "1999-01-01"},
        "DagsterUnknownPartitionError: Could not find a partition with key `1999-01-01`",
    ),
    ({"assets": ["weekly_report"], "partition_key": "acme|2026-10-20"}, "DagsterUnknownPartitionError"),
    ({"job": "invoice", "run_config": {"ops": {"work_for": {"config": {"customer": "broke"}}}}}, "customer is broke"),
]


@pytest.mark.timeout(600)
def test_bad_targets_fail_their_run_with_dagsters_message_and_harm_nothing_else(stack: TargetStack) -> None:
    with stack.app.transaction():
        bad = [fire(stack.app, add_target_job(stack.app, payload)) for payload, _ in BAD]
        good = [
            fire(stack.app, add_target_job(stack.app, payload))
            for payload in ({"job": "invoice"}, {"assets": ["daily_report"], "partition_key": "2026-02-03"})
        ]

    for run_id in good:
        run = stack.ended(run_id)
        assert run.status is RunStatus.DONE, run.error
    for run_id, (payload, said) in zip(bad, BAD, strict=True):
        run = stack.ended(run_id)
        assert run.status is RunStatus.FAILED, payload
        assert said in str(run.error), payload
        assert "{" not in str(run.error).partition("\n")[0], "the first line is for people"
    assert [tick.error for tick in stack.ticks() if tick.error is not None] == []


def test_a_canceled_and_a_deleted_dagster_run_fail_their_run(stack: TargetStack) -> None:
    """A job that the tag's concurrency keeps in the queue, so that it can be canceled there."""
    slow = {"job": "invoice", "run_config": {"ops": {"work_for": {"config": {"seconds": 15}}}}}
    for _ in range(2):
        fire(stack.app, add_target_job(stack.app, slow, "queue_ltd"))
    stack.until(lambda: len(_queued_or_begun(stack, "queue_ltd")) == 2, "two Dagster runs")
    canceled, deleted = (fire(stack.app, add_target_job(stack.app, {"job": "invoice"}, "queue_ltd")) for _ in range(2))
    stack.until(lambda: len(_queued_or_begun(stack, "queue_ltd")) == 4, "four Dagster runs")

    stack.instance.report_run_canceled(stack.dagster_run(canceled))
    stack.until(lambda: get_run(stack.app, deleted).dagster_run_id, "the link to the Dagster run")
    stack.instance.delete_run(stack.dagster_run(deleted).run_id)

    run = stack.ended(canceled)
    assert (run.status, str(run.error).endswith("was canceled.")) == (RunStatus.FAILED, True)
    run = stack.ended(deleted)
    assert (run.status, "was deleted" in str(run.error)) == (RunStatus.FAILED, True)


def _queued_or_begun(stack: TargetStack, organization: str) -> list[dg.DagsterRun]:
    return list(stack.instance.get_runs(dg.RunsFilter(tags={"sumaclock/organization": organization})))
