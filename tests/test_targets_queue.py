"""Kind dagster up to Dagster's door: payloads, templates, the launch, the hand-over and the end. No Dagster needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from sumaclock_dagster.db import Connection
from sumaclock_dagster.launches import progress
from sumaclock_dagster.launches.handler import launch_handlers
from sumaclock_dagster.launches.progress import End
from sumaclock_dagster.launches.target import check_target, parse_target, target_in_words
from sumaclock_dagster.launches.templates import Occurrence, fill
from sumaclock_dagster.model import RunStatus, SumaclockError
from sumaclock_dagster.queue.runs import get_run, retry_run
from sumaclock_dagster.queue.workers import release_stale
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.own_kinds import own_task_kinds
from sumaclock_dagster.tasks.records import TaskStatus
from sumaclock_dagster.worker import Worker
from tests.conftest import AppDatabase
from tests.tasks import add_task, call, clock_schedule, fire, make_due, settled, task_worker
from tests.waiting import until
from tests.workers import add_job, add_runs, await_ended, await_status, running

MOMENT = datetime(2026, 10, 26, 8, 0, tzinfo=UTC)
WHO = Occurrence(MOMENT, "acme", "ada", 7, "Europe/Madrid", UUID(int=5), "Weekly report")


@contextmanager
def job_worker(app_db: AppDatabase, **settings: Any) -> Iterator[Worker]:
    with running(app_db, launch_handlers(app_db.settings), **settings) as worker:
        yield worker


def launches(app: Connection) -> list[dict[str, Any]]:
    """All launches, oldest first."""
    cursor = app.execute("select * from sumaclock.dagster_launches order by id")
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def handed_over(app: Connection, run_id: int) -> None:
    until(lambda: get_run(app, run_id).claimed_by == -1, 15, f"run {run_id} to be handed over")


def launch(app: Connection) -> str:
    """Let Dagster have launched the newest launch. Returns the id of its Dagster run."""
    dagster_run = str(uuid4())
    progress.note_launched(app, {launches(app)[-1]["id"]: dagster_run})
    return dagster_run


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("{scheduled_for:%Y-%m-%d}", "2026-10-26"),
        ("{scheduled_for}", "2026-10-26T08:00Z"),
        ("{scheduled_local}", "2026-10-26T09:00+01:00"),
        ("{scheduled_local:%G-W%V}", "2026-W44"),
        ("{scheduled_local-7d}", "2026-10-19T09:00+02:00"),
        ("{scheduled_local-1w:%Y-%m-%d}|{scheduled_for+1d:%d}", "2026-10-19|27"),
        ("{scheduled_local-48h}", "2026-10-24T10:00+02:00"),
        ("{organization_id}/{user_id}/{task_id}", f"acme/ada/{UUID(int=5)}"),
        ("{title}: run {run_id}", "Weekly report: run 7"),
        ("{{literal}}", "{literal}"),
    ],
)
def test_templates_are_filled_in(text: str, filled: str) -> None:
    assert fill(text, WHO) == filled


@pytest.mark.parametrize(
    "text",
    [
        "{scheduled_for.tzinfo}",
        "{title[0]}",
        "{title!r}",
        "{title-7d}",
        "{scheduled_for-7}",
        "{scheduled_for-1y}",
        "{title:>99999999}",
        "{}",
        "{0}",
        "{user}",
        "{",
        "}",
        "{scheduled_for:%s}",
        "{scheduled_for:%",
        "{scheduled_for:{title}}",
        "{__class__}",
    ],
)
def test_a_template_reaches_nothing_but_the_named_values(text: str) -> None:
    with pytest.raises(SumaclockError, match="can't be filled in"):
        fill(text, WHO)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ([], "must be an object"),
        ({}, "either a job or assets"),
        ({"job": "a", "assets": ["b"]}, "either a job or assets"),
        ({"job": ""}, "job must be a text"),
        ({"job": "a", "config": {}}, "kind dagster knows"),
        ({"assets": [1]}, "list of asset keys"),
        ({"job": "a", "tags": {"x": 1}}, "must be a text; put 1 in quotes"),
        ({"job": "a", "tags": {"sumaclock/run": "1"}}, "is set by sumaclock"),
        ({"job": "a", "run_config": []}, "must be an object"),
        ({"job": "a", "repository": "b"}, "name the code location"),
        ({"job": "a", "dynamic_partitions": ["customers"]}, "names of dynamic partitions definitions"),
        ({"job": "a", "dynamic_partitions": {"customers": "{title!r}"}}, "can't be filled in"),
        ({"job": "a", "partition_key": "{scheduled_local}"}, "no local time"),
        ({"job": "a", "run_config": {"ops": {"x": ["{task_id}"]}}}, "no task_id"),
    ],
)
def test_a_payload_that_names_no_target_is_refused(payload: Any, said: str) -> None:
    with pytest.raises(SumaclockError, match=said):
        check_target(payload, of_task=False)


def test_a_target_is_told_in_words() -> None:
    assert target_in_words({"assets": ["a/b", "c"], "location": "etl"}) == "assets a/b, c in etl"
    assert parse_target({"job": "nightly"}).in_words() == "job nightly"
    assert target_in_words("what") == ""


def test_a_run_of_kind_dagster_is_running_until_its_dagster_run_ends(app_db: AppDatabase, app: Connection) -> None:
    payload = {"job": "nightly", "run_config": {"ops": {"x": {"config": {"day": "{scheduled_for:%Y}"}}}}}
    with job_worker(app_db):
        (run_id,) = add_runs(app, add_job(app, "dagster", payload))
        handed_over(app, run_id)
        assert get_run(app, run_id).status is RunStatus.RUNNING
        (wanted,) = launches(app)
        assert wanted["target"]["run_config"]["ops"]["x"]["config"]["day"] == str(wanted["scheduled_for"].year)
        assert (wanted["state"], wanted["idempotency_key"]) == ("requested", f"cron_run:{run_id}")

        dagster_run = launch(app)
        assert str(get_run(app, run_id).dagster_run_id) == dagster_run
        progress.end(app, [End(wanted["id"], None, {"status": "SUCCESS"})])

        run = get_run(app, run_id)
        assert (run.status, run.result, run.claimed_by) == (RunStatus.DONE, {"status": "SUCCESS"}, 0)
        assert progress.end(app, [End(wanted["id"], "too late")]) == 0


def test_a_payload_that_cannot_be_launched_fails_its_run_only(app_db: AppDatabase, app: Connection) -> None:
    with job_worker(app_db):
        (bad,) = add_runs(app, add_job(app, "dagster", {"job": "x", "partition_key": "{nothing}"}))
        (good,) = add_runs(app, add_job(app, "dagster", {"job": "x"}))
        await_ended(app, [bad])
        assert "{nothing} is none of" in str(get_run(app, bad).error)
        handed_over(app, good)


def test_a_run_that_is_dagsters_is_not_released_when_its_worker_is_gone(app_db: AppDatabase, app: Connection) -> None:
    with job_worker(app_db):
        (run_id,) = add_runs(app, add_job(app, "dagster", {"job": "x"}))
        handed_over(app, run_id)
    app.execute("update sumaclock.cron_runs set heartbeat_at = now() - interval '1 day' where id = %s", [run_id])
    app.execute("update sumaclock.workers set heartbeat_at = now() - interval '1 day', stopped_at = null")

    released = release_stale(app, app_db.settings)

    assert (released.pending, released.failed) == (0, 0)
    assert get_run(app, run_id).claimed_by == -1


def test_a_run_that_failed_in_dagster_is_launched_anew_when_it_is_tried_again(
    app_db: AppDatabase, app: Connection
) -> None:
    with job_worker(app_db):
        (run_id,) = add_runs(app, add_job(app, "dagster", {"job": "x"}))
        handed_over(app, run_id)
        launch(app)
        progress.end(app, [End(launches(app)[0]["id"], "Dagster run failed.")])
        assert (get_run(app, run_id).status, get_run(app, run_id).error) == (RunStatus.FAILED, "Dagster run failed.")

        retry_run(app, run_id)
        until(lambda: len(launches(app)) == 2, 15, "a second launch")
        handed_over(app, run_id)
        launch(app)
        progress.end(app, [End(launches(app)[1]["id"])])
        assert get_run(app, run_id).status is RunStatus.DONE


def test_an_end_before_the_hand_over_ends_the_run_at_the_hand_over(app_db: AppDatabase, app: Connection) -> None:
    """The worker died between the commit of the launch and the hand-over; another takes the run up."""
    job = add_job(app, "dagster", {"job": "x"})
    (run_id,) = add_runs(app, job)
    app.execute(
        "insert into sumaclock.dagster_launches (cron_run_id, job_id, scheduled_for, idempotency_key, organization_id,"
        " user_id, target) values (%s, %s, now(), %s, 'acme', 'ada', '{}')",
        [run_id, job, f"cron_run:{run_id}"],
    )
    launch(app)
    progress.end(app, [End(launches(app)[0]["id"], "It failed early.")])

    with job_worker(app_db):
        await_ended(app, [run_id])

    assert (get_run(app, run_id).status, get_run(app, run_id).error) == (RunStatus.FAILED, "It failed early.")
    assert len(launches(app)) == 1


def test_an_occurrence_of_a_task_is_one_launch_and_ends_with_it(app_db: AppDatabase, app: Connection) -> None:
    payload = {"assets": ["sales/report"], "partition_key": "{scheduled_local:%Y-%m-%d}", "tags": {"who": "{title}"}}
    with task_worker(app_db, own_task_kinds()):
        task_id = add_task(app, payload, kind="dagster", title="Report")
        settled(app, task_id)
        moment = make_due(app, task_id)
        # Two threads may execute them at once, so either comes first.
        fired = fire(app, task_id, count=2)
        run_id = until(
            lambda: next((one for one in fired if get_run(app, one).claimed_by == -1), None),
            15,
            "one of the runs to be handed over",
        )
        assert run_id is not None
        (second,) = set(fired) - {run_id}
        await_ended(app, [second])

        assert get_run(app, second).status is RunStatus.SKIPPED
        (wanted,) = launches(app)
        assert (wanted["task_id"], wanted["scheduled_for"]) == (task_id, moment)
        assert wanted["target"]["tags"] == {"who": "Report"}
        (task_run,) = api.list_task_runs(app, task_id)
        assert (task_run.status, task_run.finished_at) == ("running", None)
        assert api.get(app, task_id).next_run_at is not None
        assert clock_schedule(app_db, app, task_id) is not None

        launch(app)
        progress.end(app, [End(wanted["id"], "Dagster run canceled.")])
        (task_run,) = api.list_task_runs(app, task_id)
        assert (task_run.status, task_run.error) == ("failed", "Dagster run canceled.")
        assert get_run(app, run_id).status is RunStatus.FAILED
        assert api.get(app, task_id).status is TaskStatus.ACTIVE


def test_a_task_of_one_instant_fails_with_its_dagster_run(app_db: AppDatabase, app: Connection) -> None:
    with task_worker(app_db, own_task_kinds()):
        task_id = add_task(
            app, {"job": "x"}, kind="dagster", instant=datetime.now(UTC).replace(second=0, microsecond=0)
        )
        until(lambda: launches(app), 15, "the launch")
        handed_over(app, launches(app)[0]["cron_run_id"])
        assert api.get(app, task_id).status is TaskStatus.DONE
        launch(app)
        progress.end(app, [End(launches(app)[0]["id"], "No such table.\nmore")])
        task = api.get(app, task_id)
        assert (task.status, task.status_reason) == (TaskStatus.FAILED, "No such table.")


def test_run_now_pause_and_access_hold_for_targets(app_db: AppDatabase, app: Connection) -> None:
    with task_worker(app_db, own_task_kinds(), access_check="tests.tasks:check_access"):
        task_id = add_task(app, {"job": "x"}, kind="dagster")
        refused = add_task(app, {"job": "x"}, kind="dagster", organization_id="expelled")
        settled(app, task_id)
        settled(app, refused)
        call(app, "pause_task", task_id=task_id)
        by_hand = call(app, "run_task_now", task_id=task_id)
        handed_over(app, by_hand)
        again = call(app, "run_task_now", task_id=refused)
        await_ended(app, [again])

        assert get_run(app, again).status is RunStatus.SKIPPED
        assert "Expelled on Tuesday." in str(api.get(app, refused).status_reason)
        assert [line["cron_run_id"] for line in launches(app)] == [by_hand]
        assert len(api.preview(app, task_id)) == 0, "it is paused"


def test_only_one_asks_dagster_at_a_time(app_db: AppDatabase, app: Connection) -> None:
    with job_worker(app_db):
        run_ids = add_runs(app, add_job(app, "dagster", {"job": "x"}), 5)
        run_ids += add_runs(app, add_job(app, "dagster", {"assets": ["y"]}))
        run_ids += add_runs(app, add_job(app, "dagster", {"assets": ["y"], "location": "elsewhere"}))
        for run_id in run_ids:
            await_status(app, run_id, "running")
            handed_over(app, run_id)

    def offer(assets: bool = False, most: int = 10, lease: float = 60) -> list[int]:
        found = progress.offer(app, location="here", assets=assets, most=most, lease_seconds=lease)
        return [one.cron_run_id for one in found]

    first = offer(most=3)
    second = offer()
    assert (len(first), len(second)) == (3, 3)
    assert {*first, *second} == {*run_ids[:5], run_ids[6]}
    assert offer() == []
    assert offer(assets=True, lease=0) == [run_ids[5]]
    assert offer(assets=True, lease=0) == [run_ids[5]], "nobody found it in time"
    assert {one.cron_run_id for one in progress.sought(app)} == set(run_ids)
