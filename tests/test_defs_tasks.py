"""Dagster's part of tasks, on a real Dagster instance whose storage is PostgreSQL: assets, sensor and jobs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import dagster as dg
import matplotlib.image
import pandas as pd
import pytest

from sumaclock_dagster.calendar import next_occurrence, parse_schedule
from sumaclock_dagster.db import Connection
from sumaclock_dagster.definitions import build
from sumaclock_dagster.defs import task_jobs
from sumaclock_dagster.defs.own import OWN_JOBS
from sumaclock_dagster.reports.task_changes import TasksSeen, tasks_worth_reporting
from sumaclock_dagster.reports.task_pictures import draw_task_runs, draw_timeline
from sumaclock_dagster.reports.task_runs import LATE_LABELS, by_lateness, by_organization, totals
from sumaclock_dagster.reports.upcoming import Timeline, next_firings, timeline
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import TaskStatus
from tests.conftest import AppDatabase, TestCluster
from tests.dagster_storage import dagster_home, dagster_instance
from tests.tasks import WEEKLY, add_task, fired, make_due, make_task_effects, settled, task_effects, task_worker
from tests.test_defs import number, tick


@pytest.fixture(scope="module")
def instance(cluster: TestCluster) -> Iterator[dg.DagsterInstance]:
    with dagster_home(cluster, f"d_{uuid.uuid4().hex[:10]}") as home, dagster_instance(*home) as instance:
        yield instance


@pytest.fixture
def definitions(app_db: AppDatabase) -> dg.Definitions:
    return build(app_db.settings)


@pytest.fixture
def worked(app_db: AppDatabase, superuser: Connection) -> Iterator[None]:
    """A worker settles tasks meanwhile."""
    make_task_effects(superuser)
    with task_worker(app_db):
        yield


def materialised(definitions: dg.Definitions, instance: dg.DagsterInstance) -> dict[str, dict[str, Any]]:
    """The metadata of both assets by name, made through the job that the sensor launches."""
    result = definitions.resolve_job_def("report_tasks").execute_in_process(instance=instance)
    return {
        event.asset_key.to_user_string(): dict(event.materialization.metadata)  # type: ignore[union-attr]
        for event in result.get_asset_materialization_events()
    }


def records(value: Any) -> list[dict[str, Any]]:
    assert isinstance(value, dg.TableMetadataValue)
    return [dict(record.data) for record in value.records]


def is_picture(value: Any) -> bool:
    return str(value.value).startswith("![") and "(data:image/png;base64," in str(value.value)


# ---- assets


def test_task_runs_are_shown_by_organisation_outcome_and_lateness(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection, worked: None
) -> None:
    good = settled(app, add_task(app, title="payments due"))
    make_due(app, good.id, minutes_ago=3)
    fired(app, good.id)
    api.run_now(app, good.id)
    settled(app, good.id)
    bad = settled(app, add_task(app, {"break_sql": True}, organization_id="initech"))
    make_due(app, bad.id)
    failed_run = fired(app, bad.id)
    by_hand = settled(app, add_task(app, organization_id="by hand"))
    api.run_now(app, by_hand.id)
    settled(app, by_hand.id)

    metadata = materialised(definitions, instance)["task_runs"]

    assert [number(metadata[name]) for name in ("task runs", "done", "failed", "skipped")] == [4, 3, 1, 0]
    assert 100 < float(str(number(metadata["lateness p99 (s)"]))) < 300
    assert is_picture(metadata["by organisation and lateness"])
    found = {row["organization"]: row for row in records(metadata["by organisation"])}
    counted = {name: (row["done"], row["failed"]) for name, row in found.items()}
    assert counted == {"acme": (2, 0), "initech": (0, 1), "by hand": (1, 0)}
    assert found["by hand"]["lateness p50 (s)"] is None
    assert found["acme"]["lateness p50 (s)"] > 100
    newest = records(metadata["newest task runs"])
    assert [(run["trigger"], run["outcome"], run["owner"]) for run in newest] == [
        ("manual", "done", "by hand/ada"),
        ("clock", "failed", "initech/ada"),
        ("manual", "done", "acme/ada"),
        ("clock", "done", "acme/ada"),
    ]
    assert newest[1]["error"].startswith("DivisionByZero")
    assert newest[0]["error"] == ""
    assert (newest[3]["task"], uuid.UUID(newest[3]["task id"])) == ("payments\xa0due", good.id)
    (link,) = [value for name, value in metadata.items() if name.startswith("Dagster run of failed task run")]
    assert isinstance(link, dg.DagsterRunMetadataValue)
    assert link.run_id == str(failed_run.dagster_run_id)
    assert by_lateness(app).sum() == 2, "the one by hand is neither late nor early"


def test_upcoming_firings_are_shown_in_local_time_and_utc(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection, worked: None
) -> None:
    weekly = settled(app, add_task(app, title="payments due"))
    hourly = settled(app, add_task(app, cron="0 * * * *", timezone="Asia/Kathmandu", organization_id="initech"))
    api.pause(app, settled(app, add_task(app)).id)
    settled(app, api_deleted(app))

    metadata = materialised(definitions, instance)["upcoming_firings"]

    assert [number(metadata[f"{status} tasks"]) for status in ("active", "paused", "failed", "done")] == [2, 1, 0, 0]
    assert number(metadata["firings in 24 h"]) in (24, 25)
    assert number(metadata["firings in 7 days"]) in (168, 169, 170)
    assert is_picture(metadata["next 24 hours"])
    assert is_picture(metadata["next 7 days"])
    rows = records(metadata["next firings"])
    assert len(rows) == 20, "ten of each are known"
    assert hourly.next_run_at is not None
    assert rows[0]["UTC"] == f"{hourly.next_run_at:%d\xa0%b\xa0%H:%M}"
    assert rows[0]["local time"].endswith(":00\xa0+05:45")
    assert (rows[0]["owner"], rows[0]["time zone"]) == ("initech/ada", "Asia/Kathmandu")
    (first_monday, *_) = [row for row in rows if uuid.UUID(row["task id"]) == weekly.id]
    assert "\xa009:00\xa0+0" in first_monday["local time"]
    assert first_monday["task"] == "payments\xa0due"


def test_upcoming_firings_name_what_they_launch_in_dagster(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection, worked: None
) -> None:
    payloads = [{"job": "export", "location": "etl"}, {"assets": ["orders", "sales/report"], "partition_key": "acme"}]
    for payload in payloads:
        settled(app, add_task(app, payload, kind="dagster"))

    rows = records(materialised(definitions, instance)["upcoming_firings"]["next firings"])

    assert {(row["kind"], row["launches"]) for row in rows} == {
        ("dagster", "job export in etl"),
        ("dagster", "assets orders, sales/report"),
    }


def api_deleted(app: Connection) -> uuid.UUID:
    task_id = add_task(app)
    api.delete(app, task_id)
    return task_id


def test_without_tasks_both_assets_say_so(definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
    metadata = materialised(definitions, instance)
    assert number(metadata["task_runs"]["task runs"]) == 0
    assert records(metadata["task_runs"]["newest task runs"]) == []
    assert number(metadata["upcoming_firings"]["firings in 7 days"]) == 0
    assert records(metadata["upcoming_firings"]["next firings"]) == []


def test_a_timeline_counts_every_firing_that_the_calendar_knows(app: Connection, worked: None) -> None:
    for _ in range(3):
        settled(app, add_task(app, cron="*/30 * * * *"))
    once = make_instant(app, hours=5)
    late = settled(app, add_task(app))
    make_due(app, late.id, minutes_ago=7)

    day = timeline(app, 24, 1)

    expected = 0
    moment: datetime | None = day.start
    schedule = parse_schedule("*/30 * * * *")
    while (moment := next_occurrence(schedule, moment or day.start)) and moment < day.start + timedelta(hours=24):
        expected += 3
    assert day.complete
    in_a_day = parse_schedule(WEEKLY)
    monday = next_occurrence(in_a_day, day.start)
    assert monday is not None
    mondays = int(monday < day.start + timedelta(hours=24))
    assert int(day.per_bar.sum()) == expected + 1 + 1 + mondays
    assert day.tasks[0][1][0] == day.start, "what is late is due at once"
    assert next_firings(app)["occurrence"].is_monotonic_increasing
    assert [moments for _, moments in day.tasks if moments == [once]] == [[once]]


def make_instant(app: Connection, hours: int) -> datetime:
    row = app.execute("select date_trunc('minute', now()) + %s * interval '1 hour'", [hours]).fetchone()
    assert row is not None
    settled(app, add_task(app, instant=row[0]))
    return row[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("tasks", [0, 1, 10])
@pytest.mark.parametrize(("hours", "bar_hours"), [(24, 1), (168, 6)])
def test_a_timeline_is_drawn_whatever_people_call_their_tasks(tasks: int, hours: int, bar_hours: int) -> None:
    start = datetime(2026, 3, 28, 22, 17, 30, tzinfo=UTC)
    bars = pd.date_range(
        start.replace(minute=0, second=0, hour=18), periods=hours // bar_hours + 2, freq=f"{bar_hours}h"
    )
    rows = [(f"Zahlung $x^2$ ñ 日本 {'t' * n * 10}", [start + timedelta(hours=n, minutes=5)] * n) for n in range(tasks)]
    counts = pd.Series(range(len(bars)), index=bars, dtype="int64") * tasks

    png = draw_timeline(Timeline(start, hours, bar_hours, rows, counts, complete=tasks < 10))

    assert len(png) < 100_000, "it travels inside an event"
    pixels = matplotlib.image.imread(BytesIO(png))
    assert pixels.shape[1] == 900
    assert 300 <= pixels.shape[0] <= 600


def test_task_runs_are_drawn_for_many_organisations_and_for_none(app: Connection) -> None:
    many = pd.DataFrame(
        {"organization_id": [f"org $ {n}" * n for n in range(30)], "done": 5, "failed": 1, "skipped": 0}
    )
    late = pd.Series(range(len(LATE_LABELS)), index=LATE_LABELS)
    for png in (draw_task_runs(many, late), draw_task_runs(by_organization(app), by_lateness(app))):
        assert matplotlib.image.imread(BytesIO(png)).shape[:2] == (380, 900)
        assert len(png) < 100_000
    assert totals(app)["task_runs"] == 0


# ---- sensor


def test_reports_are_renewed_only_when_something_happened(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection
) -> None:
    quiet = tick(definitions, instance, "tasks_changed")
    task_id = add_task(app)
    first = tick(definitions, instance, "tasks_changed", quiet.cursor)
    again = tick(definitions, instance, "tasks_changed", first.cursor)
    api.pause(app, task_id)
    soon = tick(definitions, instance, "tasks_changed", first.cursor)

    assert [len(data.run_requests or ()) for data in (quiet, first, again, soon)] == [0, 1, 0, 0]
    assert "0 tasks" in quiet.skip_message


SEEN = TasksSeen(2, "10:00", 7, 1000.0)


@pytest.mark.parametrize(
    ("now", "reported", "worth"),
    [
        (TasksSeen(0, "epoch", 0, 1000.0), None, False),
        (SEEN, None, True),
        (TasksSeen(2, "10:00", 7, 9000.0), SEEN, False),
        (TasksSeen(2, "10:00", 8, 1060.0), SEEN, False),
        (TasksSeen(2, "10:00", 8, 2800.0), SEEN, True),
        (TasksSeen(2, "10:01", 7, 2800.0), SEEN, True),
        (TasksSeen(3, "10:00", 7, 2800.0), SEEN, True),
    ],
)
def test_when_reports_of_tasks_are_worth_making_again(now: TasksSeen, reported: TasksSeen | None, worth: bool) -> None:
    assert tasks_worth_reporting(now, reported) is worth


@pytest.mark.parametrize("cursor", ["nonsense", "{}", "[]", "1"])
def test_a_cursor_that_says_nothing_is_no_cursor(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection, cursor: str
) -> None:
    add_task(app)
    assert len(tick(definitions, instance, "tasks_changed", cursor).run_requests) == 1


# ---- jobs


def launch(
    definitions: dg.Definitions, instance: dg.DagsterInstance, job: str, op: str, **config: str
) -> tuple[dg.ExecuteInProcessResult, dict[str, Any], str]:
    """The result, the metadata of the op, and what it failed with."""
    given = {"ops": {op: {"config": config}}} if config else None
    result = definitions.resolve_job_def(job).execute_in_process(
        instance=instance, run_config=given, raise_on_error=False
    )
    events = result.all_node_events
    metadata = [event.step_output_data.metadata for event in events if event.is_successful_output]
    errors = [event.step_failure_data for event in events if event.is_step_failure]
    said = " ".join(str(error.user_failure_data.description) for error in errors if error.user_failure_data)
    return result, dict(metadata[0]) if metadata else {}, said


def test_pause_resume_and_run_now_take_a_task_id(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection, worked: None
) -> None:
    task = settled(app, add_task(app, title="payments due"))

    paused = launch(definitions, instance, "pause_task", "pause", task_id=str(task.id), reason="on holiday")
    assert paused[0].success
    found = api.get(app, task.id)
    assert (found.status, found.status_reason) == (TaskStatus.PAUSED, "on holiday")
    assert paused[1]["status"].value == "paused: on holiday"

    resumed = launch(definitions, instance, "resume_task", "resume", task_id=f" {task.id.hex} ")
    assert resumed[0].success
    placed = api.get(app, task.id)
    assert (placed.status, placed.next_run_at) == (TaskStatus.ACTIVE, task.next_run_at)
    assert resumed[1]["fires next (UTC)"].value == f"{task.next_run_at:%Y-%m-%d %H:%M}"

    ran = launch(definitions, instance, "run_task_now", "run_now", task_id=str(task.id))
    assert ran[0].success
    [effect] = task_effects(app, task.id)
    assert effect[1] == "manual"
    assert str(ran[1]["run"].value).endswith(": done")
    assert isinstance(ran[1]["executed in"], dg.DagsterRunMetadataValue)
    assert api.get(app, task.id).next_run_at == task.next_run_at


def test_a_run_by_hand_that_fails_fails_the_dagster_run(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection, worked: None
) -> None:
    task = settled(app, add_task(app, {"break_sql": True}))
    result, _, said = launch(definitions, instance, "run_task_now", "run_now", task_id=str(task.id))
    assert not result.success
    assert "DivisionByZero" in said


@pytest.mark.parametrize(
    ("job", "op"), [("pause_task", "pause"), ("resume_task", "resume"), ("run_task_now", "run_now")]
)
def test_errors_of_the_launchpad_say_what_to_correct(
    definitions: dg.Definitions, instance: dg.DagsterInstance, job: str, op: str
) -> None:
    untouched, _, said = launch(definitions, instance, job, op)
    assert not untouched.success
    assert 'task_id "write the task\'s id here" is no id of a task. It is in the asset upcoming_firings' in said
    unknown = uuid.uuid4()
    gone, _, said = launch(definitions, instance, job, op, task_id=str(unknown))
    assert not gone.success
    assert f"There is no task {unknown}" in said


def test_without_a_worker_the_jobs_say_what_they_wait_for(
    definitions: dg.Definitions, instance: dg.DagsterInstance, app: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_jobs, "PLACED_SECONDS", 0.2)
    monkeypatch.setattr(task_jobs, "ENDED_SECONDS", 0.2)
    task_id = add_task(app)
    for job, op in (("resume_task", "resume"), ("run_task_now", "run_now")):
        result, metadata, _ = launch(definitions, instance, job, op, task_id=str(task_id))
        assert result.success
        assert metadata["fires next (UTC)"].value == "never, or not known yet"
        warnings = [entry.user_message for entry in instance.all_logs(result.run_id) if entry.level == 30]
        assert any("No worker is alive" in text for text in warnings)


def test_the_daily_prune_knows_all_jobs_of_ours(definitions: dg.Definitions) -> None:
    names = {name for name in definitions.get_repository_def().job_names if not name.startswith("__")}
    assert names == set(OWN_JOBS)


def test_the_launchpad_describes_what_it_wants(definitions: dg.Definitions) -> None:
    for job, op in (("pause_task", "pause"), ("resume_task", "resume"), ("run_task_now", "run_now")):
        node = definitions.resolve_job_def(job).get_node_named(op).definition
        assert isinstance(node, dg.OpDefinition)
        fields = node.config_schema.config_type.fields  # type: ignore[union-attr,attr-defined]
        assert "Id of the task" in str(fields["task_id"].description)
