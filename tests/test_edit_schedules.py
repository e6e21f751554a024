"""The job `edit_schedules`, launched as Dagster launches it, on a real instance: what it does and says."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository

from sumaclock_dagster.db import Connection
from sumaclock_dagster.definitions import build
from sumaclock_dagster.defs import edit_schedules
from sumaclock_dagster.defs.schedule_config import EXAMPLE, Create, DagsterJob
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import Task, TaskStatus
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.dagster_storage import dagster_home, dagster_instance
from tests.tasks import task_worker

JOB = ReconstructableRepository.for_module("tests.schedule_location", "defs").get_reconstructable_job("edit_schedules")
INVOICES = {"job": {"name": "invoices", "run_config": {"ops": {"write_invoice": {"config": {"month": "2026-11"}}}}}}


@dataclass(frozen=True)
class Answer:
    """What one Dagster run of the job came to. told: what it failed with."""

    success: bool
    metadata: dict[str, Any]
    told: str
    warnings: list[str]

    @property
    def task_id(self) -> uuid.UUID:
        return uuid.UUID(str(self.metadata["task id"].value))

    def text(self, name: str) -> str:
        return str(self.metadata[name].value)

    def occurrences(self) -> list[tuple[str, ...]]:
        rows = [record.data for record in self.metadata["fires next"].records]
        return [tuple(str(value).replace("\xa0", " ") for value in row.values()) for row in rows]


@pytest.fixture(scope="module")
def instance(cluster: TestCluster) -> Iterator[dg.DagsterInstance]:
    with dagster_home(cluster, f"d_{uuid.uuid4().hex[:10]}") as home, dagster_instance(*home) as instance:
        yield instance


@pytest.fixture(scope="module")
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    """One for all: Dagster loads the code location once, with the environment of then."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        yield make_app_database(cluster, name)
    finally:
        drop_app_database(cluster, name)


@pytest.fixture
def location(app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the code location's processes."""
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", app_db.app_url)
    monkeypatch.setenv("SUMACLOCK_CRON_DATABASE_URL", app_db.cron_url)


@pytest.fixture
def worked(app_db: AppDatabase) -> Iterator[None]:
    with task_worker(app_db):
        yield


@pytest.fixture
def unplaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a worker that does not exist."""
    monkeypatch.setattr(edit_schedules, "PLACED_SECONDS", 0.0)


def launch(instance: dg.DagsterInstance, change: str, **given: Any) -> Answer:
    config = {"ops": {"edit_schedule": {"config": {"schedule": {change: given}}}}}
    with dg.execute_job(JOB, instance=instance, run_config=config) as result:
        events = result.all_node_events
        warnings = [entry.user_message for entry in instance.all_logs(result.run_id) if entry.level == 30]
    metadata = [event.step_output_data.metadata for event in events if event.is_successful_output]
    failures = [event.step_failure_data.user_failure_data for event in events if event.is_step_failure]
    told = " ".join(str(failure.description) for failure in failures if failure)
    assert result.success or told, "a refusal is told as such, not as a raise"
    kept = dict(metadata[0]) if metadata else dict(failures[0].metadata) if failures and failures[0] else {}
    return Answer(result.success, kept, told, warnings)


def create(instance: dg.DagsterInstance, **given: Any) -> Answer:
    owner = {"organization_id": "acme", "user_id": "ada", "title": "Weekly report"}
    return launch(instance, "create", **{**owner, "cron": "0 9 * * MON", "runs": INVOICES, **given})


def task_of(app: Connection, answer: Answer) -> Task:
    assert answer.success, answer.told
    return api.get(app, answer.task_id)


def test_a_new_schedule_is_a_task_and_its_metadata_say_what_it_is(
    instance: dg.DagsterInstance, app: Connection, location: None, worked: None
) -> None:
    answer = create(instance)

    task = task_of(app, answer)
    assert (task.kind, task.organization_id, task.user_id, task.title) == ("dagster", "acme", "ada", "Weekly report")
    assert task.payload == {"job": "invoices", "run_config": INVOICES["job"]["run_config"]}
    assert (task.cron, task.timezone, task.status) == ("0 9 * * MON", "Europe/Madrid", TaskStatus.ACTIVE)
    assert task.next_run_at is not None
    assert answer.text("schedule") == "At 09:00, on Monday (Europe/Madrid)"
    assert answer.text("runs") == "job invoices"
    assert answer.text("owner") == "acme/ada"
    assert answer.text("status") == "active"
    lines = answer.occurrences()
    assert len(lines) == 5
    assert lines[0][1] == f"{task.next_run_at:%a %d %b %Y %H:%M}"
    assert all(local.startswith("Mon") and " 09:00 +0" in local for local, _, _ in lines)


def test_the_next_occurrences_show_a_clock_change(instance: dg.DagsterInstance, location: None, unplaced: None) -> None:
    lines = create(instance, cron="30 2 28 3 *").occurrences()
    assert "moved: the clock skips this time" in " ".join(change for _, _, change in lines), lines


def test_a_schedule_may_run_assets_another_location_or_any_kind_once_or_again(
    instance: dg.DagsterInstance, app: Connection, location: None, unplaced: None
) -> None:
    assets = create(instance, runs={"assets": {"asset_keys": ["report"], "partition_key": "{organization_id}"}})
    assert task_of(app, assets).payload == {"assets": ["report"], "partition_key": "{organization_id}"}
    assert assets.text("runs") == "asset report, partition {organization_id}"
    assert any("No worker is alive" in text for text in assets.warnings)

    elsewhere = create(instance, runs={"job": {"name": "who knows", "location": "etl", "tags": {"team": "sales"}}})
    assert task_of(app, elsewhere).payload == {"job": "who knows", "location": "etl", "tags": {"team": "sales"}}
    assert elsewhere.text("runs") == "job who knows in etl"

    there = {"location": "etl", "repository": "core", "dynamic_partitions": {"customers": "{organization_id}"}}
    precise = create(instance, runs={"job": {"name": "who knows", **there, "partition_key": "{organization_id}"}})
    assert task_of(app, precise).payload == {"job": "who knows", **there, "partition_key": "{organization_id}"}
    lonely = create(instance, runs={"assets": {"asset_keys": ["totals"], "repository": "core"}})
    assert "name the code location that it is in" in lonely.told

    kind = create(instance, runs={"kind": {"name": "log", "payload": {"a": [1, None]}}})
    assert (task_of(app, kind).kind, task_of(app, kind).payload) == ("log", {"a": [1, None]})

    once = create(instance, cron="", instant="2099-07-01 09:00", timezone="America/Lima")
    assert f"{task_of(app, once).instant:%Y-%m-%dT%H:%M%z}" == "2099-07-01T14:00+0000"
    assert [line[0] for line in once.occurrences()] == ["Wed 01 Jul 2099 09:00 -05:00"]


def test_what_is_given_is_edited_and_the_rest_stays(
    instance: dg.DagsterInstance, app: Connection, location: None, worked: None
) -> None:
    made = create(instance)
    edited = launch(instance, "edit", task_id=made.text("task id"), cron="30 8 * * MON-FRI", timezone="Asia/Kolkata")
    task = task_of(app, edited)
    assert (task.cron, task.timezone, task.title) == ("30 8 * * MON-FRI", "Asia/Kolkata", "Weekly report")
    assert task.payload["job"] == "invoices"
    assert edited.text("schedule") == "At 08:30, from Monday to Friday (Asia/Kolkata)"

    other = launch(instance, "edit", task_id=f" {task.id.hex} ", runs={"assets": {"asset_keys": ["totals"]}})
    assert task_of(app, other).payload == {"assets": ["totals"]}
    assert task_of(app, other).cron == "30 8 * * MON-FRI"

    once = launch(instance, "edit", task_id=str(task.id), instant="2099-07-01 09:00", title="Once")
    assert f"{task_of(app, once).instant:%Y-%m-%dT%H:%M}" == "2099-07-01T03:30"
    assert task_of(app, once).cron is None


def test_a_schedule_is_paused_resumed_and_deleted(
    instance: dg.DagsterInstance, app: Connection, location: None, worked: None
) -> None:
    task_id = create(instance).text("task id")

    paused = launch(instance, "pause", task_id=task_id, reason="on holiday")
    assert task_of(app, paused).status is TaskStatus.PAUSED
    assert paused.text("status") == "paused: on holiday"
    assert paused.occurrences() == []

    resumed = launch(instance, "resume", task_id=task_id)
    assert task_of(app, resumed).next_run_at is not None
    assert len(resumed.occurrences()) == 5

    deleted = launch(instance, "delete", task_id=task_id)
    assert task_of(app, deleted).deleted_at is not None
    assert deleted.text("status").startswith("deleted")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"cron": ""}, "A schedule takes either cron or instant and neither was given"),
        ({"instant": "2099-01-01 09:00"}, "and both were given"),
        ({"cron": "", "instant": "tomorrow"}, "instant 'tomorrow' is no date and time; write for example"),
        ({"cron": "0 9 * *"}, "0 9 * *"),
        ({"cron": "0 9 * * FRI-MON"}, "FRI-MON"),
        ({"timezone": "Madrid"}, "Europe/Madrid"),
        ({"organization_id": ""}, "organization"),
        (
            {"runs": {"job": {"name": "invoice"}}},
            "no job \"invoice\". Did you mean 'invoices'? It has: invoices, reports.",
        ),
        ({"runs": {"job": {"name": "prune"}}}, 'no job "prune"'),
        ({"runs": {"job": {"name": "invoices"}}}, "run_config does not fit the job 'invoices'"),
        (
            {
                "runs": {
                    "job": {"name": "invoices", "run_config": {"ops": {"write_invoice": {"config": {"moth": "1"}}}}}
                }
            },
            "moth",
        ),
        ({"runs": {"job": {"name": "reports"}}}, "Job 'reports' has partitions: write in partition_key"),
        ({"runs": {"assets": {"asset_keys": []}}}, "asset_keys is empty: write for example [daily/sales]"),
        ({"runs": {"assets": {"asset_keys": ["sales"]}}}, 'no asset "sales". Did you mean'),
        ({"runs": {"assets": {"asset_keys": ["elsewhere"]}}}, 'no asset "elsewhere"'),
        ({"runs": {"assets": {"asset_keys": ["totals"], "partition_key": "acme"}}}, "'totals' has no partitions"),
        (
            {"runs": {"assets": {"asset_keys": ["daily/sales"], "partition_key": "1999-01-01"}}},
            "Asset 'daily/sales' has no partition '1999-01-01'; the last ones are",
        ),
        (
            {"runs": {"assets": {"asset_keys": ["report"], "partition_key": "{customer}"}}},
            "{customer} is none of scheduled_for",
        ),
        ({"runs": {"assets": {"asset_keys": ["totals"], "tags": {"sumaclock/run": "1"}}}}, "tag 'sumaclock/run'"),
    ],
)
def test_an_error_says_what_to_correct_and_nothing_is_kept(
    instance: dg.DagsterInstance,
    app: Connection,
    location: None,
    unplaced: None,
    given: dict[str, Any],
    told: str,
) -> None:
    before = api.list_tasks(app)
    answer = create(instance, **given)
    assert not answer.success
    assert told in answer.told
    assert answer.text("change") == "create"
    assert api.list_tasks(app) == before


def test_errors_about_a_task_say_what_to_correct(
    instance: dg.DagsterInstance, app: Connection, location: None, unplaced: None
) -> None:
    task_id = create(instance).text("task id")
    unknown = str(uuid.uuid4())
    for change in ("edit", "pause", "resume", "delete"):
        more = {"title": "x"} if change == "edit" else {}
        assert f"no task {unknown}" in launch(instance, change, task_id=unknown, **more).told
        assert "upcoming_firings" in launch(instance, change, task_id="the first", **more).told
    assert "Nothing to change" in launch(instance, "edit", task_id=task_id).told
    assert (
        "leave one of them empty"
        in launch(instance, "edit", task_id=task_id, cron="0 9 * * *", instant="2099-01-01 09:00").told
    )


def test_what_a_worker_alone_can_refuse_fails_the_dagster_run_too(
    instance: dg.DagsterInstance, app: Connection, location: None, worked: None
) -> None:
    task_id = create(instance).text("task id")
    api.pause(app, uuid.UUID(task_id))
    app.execute("update sumaclock.ai_tasks set cron = '0 0 30 2 *' where id = %s", [task_id])
    answer = launch(instance, "resume", task_id=task_id)
    assert not answer.success
    assert "30 2 *" in answer.told


def test_the_launchpad_starts_with_every_field_of_a_new_schedule_and_explains_each() -> None:
    job = build(Settings(database_url="postgresql://a@127.0.0.1:1/x")).resolve_job_def("edit_schedules")  # type: ignore[arg-type]
    assert dg.validate_run_config(job, job.run_config)
    example = EXAMPLE["schedule"]["create"]
    assert set(example) == set(Create.model_fields) - {"change"}
    assert set(example["runs"]["job"]) == set(DagsterJob.model_fields) - {"what"}

    node = job.get_node_named("edit_schedule").definition
    assert isinstance(node, dg.OpDefinition)
    fields = list(described(node.config_schema.config_type))
    assert len(fields) > 30
    assert [name for name, description in fields if not description] == []
    assert {"create", "edit", "pause", "resume", "delete", "job", "assets", "kind", "as_before"} <= {
        n for n, _ in fields
    }


def described(config_type: Any) -> Iterator[tuple[str, str | None]]:
    """Names and descriptions of all fields below, as the Launchpad's help shows them."""
    for name, field in getattr(config_type, "fields", {}).items():
        yield name, field.description or field.config_type.description
        yield from described(field.config_type)
