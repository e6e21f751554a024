"""Tasks are placed, fired, changed, paused and ended by real workers, and their clock jobs follow."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from psycopg.types.json import Jsonb

from sumaclock_dagster.calendar import parse_schedule, pg_cron_for, preview, zone_data_version
from sumaclock_dagster.clock.jobs import delete_job
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.model import RunStatus, SumaclockError
from sumaclock_dagster.queue.runs import get_run, retry_run
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.align import align
from sumaclock_dagster.tasks.records import TaskStatus, TaskTrigger
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.tasks import (
    WEEKLY,
    add_task,
    call,
    clock_schedule,
    fire,
    fired,
    is_enabled,
    make_due,
    make_task_effects,
    settled,
    task_effects,
    task_worker,
)
from tests.waiting import until
from tests.workers import await_ended

MADRID = ZoneInfo("Europe/Madrid")


@pytest.fixture(scope="module")
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    """One database and one worker for all: each test has its own tasks."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        made = make_app_database(cluster, name)
        with connect(made.superuser_url, "test superuser") as superuser:
            make_task_effects(superuser)
        with task_worker(made, access_check="tests.tasks:check_access", task_attempts=3):
            yield made
    finally:
        drop_app_database(cluster, name)


def now(app: Connection) -> datetime:
    row = app.execute("select now()").fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


def minute(app: Connection, **ahead: Any) -> datetime:
    return now(app).replace(second=0, microsecond=0) + timedelta(**ahead)


def test_a_weekly_task_is_placed_at_its_local_time(app_db: AppDatabase, app: Connection) -> None:
    task = settled(app, add_task(app, title="payments due"))
    lines = preview(parse_schedule(WEEKLY), now(app), 10)
    assert task.next_run_at == lines[0].occurrence
    assert (task.next_run_at.astimezone(MADRID).strftime("%a %H:%M"), task.status) == ("Mon 09:00", TaskStatus.ACTIVE)
    assert clock_schedule(app_db, app, task.id) == pg_cron_for(task.next_run_at)
    assert is_enabled(app, task.id)
    shown = api.preview(app, task.id)
    assert [(line.occurrence, line.local) for line in shown] == [
        (line.occurrence, line.local.isoformat(timespec="minutes")) for line in lines
    ]
    assert {datetime.fromisoformat(line.local).hour for line in shown} == {9}


def test_a_firing_runs_once_and_places_the_next(app_db: AppDatabase, app: Connection) -> None:
    task = settled(app, add_task(app, {"say": "hello"}))
    occurrence = make_due(app, task.id)
    run = fired(app, task.id)
    after = api.get(app, task.id)
    assert (run.status, run.result) == (RunStatus.DONE, {"next_run_at": f"{after.next_run_at:%Y-%m-%d %H:%M} UTC"})
    assert after.next_run_at == task.next_run_at
    assert after.last_scheduled_for == occurrence
    assert task_effects(app, task.id) == [(occurrence, "clock")]
    (row,) = api.list_task_runs(app, task.id)
    assert (row.scheduled_for, row.trigger, row.status, row.result) == (
        occurrence,
        TaskTrigger.CLOCK,
        "done",
        {"said": "hello"},
    )
    assert (row.cron_run_id, row.error) == (run.id, None)
    assert row.idempotency_key == f"ai_task_run:{task.id}:{occurrence:%Y-%m-%dT%H:%M}Z"
    assert occurrence <= row.started_at <= row.finished_at
    assert clock_schedule(app_db, app, task.id) == pg_cron_for(after.next_run_at)


def test_a_firing_by_the_catch_up_is_told_apart(app: Connection) -> None:
    task = settled(app, add_task(app))
    occurrence = make_due(app, task.id, minutes_ago=3)
    assert fired(app, task.id, "catch_up").status is RunStatus.DONE
    assert task_effects(app, task.id) == [(occurrence, "heartbeat")]


def test_rule_9_what_was_missed_for_weeks_runs_once(app: Connection) -> None:
    task = settled(app, add_task(app))
    occurrence = make_due(app, task.id, minutes_ago=60 * 24 * 22)
    assert fired(app, task.id).status is RunStatus.DONE
    assert task_effects(app, task.id) == [(occurrence, "clock")]
    assert api.get(app, task.id).next_run_at == task.next_run_at
    assert fired(app, task.id).status is RunStatus.SKIPPED
    assert len(task_effects(app, task.id)) == 1


def test_an_instant_runs_and_is_done(app_db: AppDatabase, app: Connection) -> None:
    instant = minute(app, days=3)
    task = settled(app, add_task(app, instant=instant))
    assert (task.next_run_at, clock_schedule(app_db, app, task.id)) == (instant, pg_cron_for(instant))
    occurrence = make_due(app, task.id)
    assert fired(app, task.id).status is RunStatus.DONE
    done = api.get(app, task.id)
    assert (done.status, done.next_run_at, done.status_reason) == (TaskStatus.DONE, None, None)
    assert task_effects(app, task.id) == [(occurrence, "clock")]
    assert clock_schedule(app_db, app, task.id) is None
    assert not is_enabled(app, task.id)
    assert fired(app, task.id).error == "The job was paused after this run was fired."


def test_an_instant_of_the_last_hour_runs_at_once(app_db: AppDatabase, app: Connection) -> None:
    instant = minute(app, minutes=-55)
    task = settled(app, add_task(app, instant=instant))
    assert task.status is TaskStatus.DONE
    assert task_effects(app, task.id) == [(instant, "clock")]
    assert clock_schedule(app_db, app, task.id) is None
    # Asked for again, it is not executed again.
    call(app, "update_task", task_id=task.id, instant=instant)
    assert settled(app, task.id).status is TaskStatus.DONE
    assert task_effects(app, task.id) == [(instant, "clock")]
    # Another one is.
    call(app, "update_task", task_id=task.id, instant=minute(app))
    assert settled(app, task.id).status is TaskStatus.DONE
    assert len(task_effects(app, task.id)) == 2


@pytest.mark.parametrize("schedule", ["in two years", "29 February", "next minute", "next year's same minute"])
def test_rule_8_an_early_firing_runs_nothing_and_places_again(
    app_db: AppDatabase, app: Connection, superuser: Connection, schedule: str
) -> None:
    this_minute = minute(app)
    arguments: dict[str, Any] = {
        "in two years": {"instant": this_minute + timedelta(days=800)},
        "29 February": {"cron": "0 9 29 2 *"},
        "next minute": {"cron": "* * * * *"},
        # Its clock job matches now, a year too early.
        "next year's same minute": {"instant": this_minute.replace(year=this_minute.year + 1, day=1)},
    }[schedule]
    task = settled(app, add_task(app, **arguments))
    assert task.next_run_at is not None
    placed = pg_cron_for(task.next_run_at)
    assert clock_schedule(app_db, app, task.id) == placed
    with open_clock(app, app_db.cron_url) as clock:
        clock.schedule(task.cron_job_id, "7 7 7 7 *")
    run = fired(app, task.id)
    if schedule == "next minute" and task_effects(app, task.id):
        pytest.skip("the minute ended in the middle of this test, and the firing was not early any more")
    assert (run.status, run.error) == (
        RunStatus.SKIPPED,
        f"The task is not due before {task.next_run_at:%Y-%m-%d %H:%M} UTC.",
    )
    assert task_effects(app, task.id) == []
    assert clock_schedule(app_db, app, task.id) == placed
    if schedule == "29 February":
        assert (task.next_run_at.month, task.next_run_at.day, task.next_run_at.year % 4) == (2, 29, 0)
    call(app, "delete_task", task_id=task.id)


def test_a_clock_job_made_just_before_its_minute_may_miss_it_so_a_run_is_written_besides(
    app_db: AppDatabase, app: Connection
) -> None:
    task = settled(app, add_task(app))
    occurrence = make_due(app, task.id)
    with open_clock(app, app_db.cron_url) as clock:
        align(app, clock, task.cron_job_id)
        align(app, clock, task.cron_job_id)
    assert settled(app, task.id).last_scheduled_for == occurrence
    assert task_effects(app, task.id) == [(occurrence, "clock")]


def test_an_edit_computes_from_now_and_never_fires_the_past_one(app_db: AppDatabase, app: Connection) -> None:
    task = settled(app, add_task(app))
    with app.transaction():
        make_due(app, task.id)
        call(app, "update_task", task_id=task.id, cron="30 7 * * *", title="earlier")
        ids = fire(app, task.id)
    await_ended(app, ids)
    after = settled(app, task.id)
    assert get_run(app, ids[0]).status is RunStatus.SKIPPED
    assert task_effects(app, task.id) == []
    assert after.next_run_at == preview(parse_schedule("30 7 * * *"), now(app), 1)[0].occurrence
    assert (after.cron, after.title) == ("30 7 * * *", "earlier")
    assert clock_schedule(app_db, app, task.id) == pg_cron_for(after.next_run_at)


def test_an_edit_of_the_zone_alone_and_from_cron_to_instant(app_db: AppDatabase, app: Connection) -> None:
    task = settled(app, add_task(app))
    call(app, "update_task", task_id=task.id, timezone="Asia/Kathmandu")
    there = settled(app, task.id)
    assert there.next_run_at == preview(parse_schedule(WEEKLY, timezone="Asia/Kathmandu"), now(app), 1)[0].occurrence
    instant = minute(app, days=9)
    call(app, "update_task", task_id=task.id, instant=instant)
    once = settled(app, task.id)
    assert (once.cron, once.instant, once.next_run_at) == (None, instant, instant)
    assert clock_schedule(app_db, app, task.id) == pg_cron_for(instant)


def test_an_edit_of_the_title_moves_nothing(app: Connection) -> None:
    task = settled(app, add_task(app))
    count = "select count(*) from sumaclock.cron_runs where job_id = %s"
    before = app.execute(count, [task.cron_job_id]).fetchone()
    call(app, "update_task", task_id=task.id, title="other", payload=Jsonb({"say": "new"}), kind="log")
    after = api.get(app, task.id)
    assert (after.title, after.payload, after.kind, after.next_run_at) == (
        "other",
        {"say": "new"},
        "log",
        task.next_run_at,
    )
    assert (
        app.execute("select count(*) from sumaclock.cron_runs where job_id = %s", [task.cron_job_id]).fetchone()
        == before
    )


def test_a_paused_task_fires_nothing_and_resumes_from_now(app_db: AppDatabase, app: Connection) -> None:
    task = settled(app, add_task(app))
    occurrence = make_due(app, task.id)
    fired(app, task.id)
    with app.transaction():
        make_due(app, task.id)
        call(app, "pause_task", task_id=task.id, reason="on holiday")
        ids = fire(app, task.id)
    await_ended(app, ids)
    paused = settled(app, task.id)
    assert get_run(app, ids[0]).status is RunStatus.SKIPPED
    assert (paused.status, paused.status_reason, paused.next_run_at) == (TaskStatus.PAUSED, "on holiday", None)
    assert clock_schedule(app_db, app, task.id) is None
    assert not is_enabled(app, task.id)
    assert api.preview(app, task.id) == []
    # An edit leaves it paused.
    call(app, "update_task", task_id=task.id, cron="0 8 * * *")
    assert settled(app, task.id).status is TaskStatus.PAUSED
    call(app, "resume_task", task_id=task.id)
    after = settled(app, task.id)
    assert (after.status, after.status_reason) == (TaskStatus.ACTIVE, None)
    assert after.next_run_at is not None
    assert after.next_run_at > now(app)
    assert clock_schedule(app_db, app, task.id) == pg_cron_for(after.next_run_at)
    assert is_enabled(app, task.id)
    assert task_effects(app, task.id) == [(occurrence, "clock")]
    assert [run.scheduled_for for run in api.list_task_runs(app, task.id)] == [occurrence]


def test_run_now_does_not_move_the_schedule(app_db: AppDatabase, app: Connection) -> None:
    task = settled(app, add_task(app))
    run_id = call(app, "run_task_now", task_id=task.id)
    await_ended(app, [run_id])
    run = get_run(app, run_id)
    assert (run.status, run.trigger) == (RunStatus.DONE, "manual")
    assert task_effects(app, task.id) == [(run.scheduled_at, "manual")]
    (row,) = api.list_task_runs(app, task.id)
    assert (row.trigger, row.scheduled_for) == (TaskTrigger.MANUAL, run.scheduled_at)
    assert row.idempotency_key == f"ai_task_run:{task.id}:{run.scheduled_at.replace(tzinfo=None).isoformat()}Z"
    after = api.get(app, task.id)
    assert (after.next_run_at, after.last_scheduled_for) == (task.next_run_at, None)
    assert clock_schedule(app_db, app, task.id) == pg_cron_for(task.next_run_at)  # type: ignore[arg-type]
    call(app, "pause_task", task_id=task.id)
    await_ended(app, [call(app, "run_task_now", task_id=task.id)])
    assert len(task_effects(app, task.id)) == 2
    assert api.get(app, task.id).status is TaskStatus.PAUSED


def test_a_deleted_task_stays_as_history_and_its_clock_job_goes(app_db: AppDatabase, app: Connection) -> None:
    task = settled(app, add_task(app, {"say": "x"}))
    make_due(app, task.id)
    fired(app, task.id)
    with app.transaction():
        make_due(app, task.id)
        call(app, "delete_task", task_id=task.id)
        late = fire(app, task.id)
    await_ended(app, late)
    gone = settled(app, task.id)
    assert gone.deleted_at is not None
    assert gone.next_run_at is None
    assert len(task_effects(app, task.id)) == len(api.list_task_runs(app, task.id)) == 1
    assert clock_schedule(app_db, app, task.id) is None
    assert not is_enabled(app, task.id)
    assert task.id not in {task.id for task in api.list_tasks(app, limit=1000)}
    assert task.id in {task.id for task in api.list_tasks(app, deleted=True, limit=1000)}
    with pytest.raises(SumaclockError, match="belongs to a task"):
        delete_job(app, Clock(app_db.cron_url, app_db.name), task.cron_job_id)


@pytest.mark.parametrize(
    ("organization", "reason"),
    [
        ("expelled", "Expelled on Tuesday."),
        ("refused", "The owner has no access any more."),
        ("unsaid", "The owner has no access any more."),
        ("barred", "The owner has no access any more. (sumaclock.owner_has_access)"),
        ("unknown", "The owner has no access any more. (sumaclock.owner_has_access)"),
    ],
)
@pytest.mark.parametrize("trigger", ["clock", "manual"])
def test_an_owner_without_access_is_skipped_and_the_task_paused(
    app_db: AppDatabase, app: Connection, organization: str, reason: str, trigger: str
) -> None:
    with connect(app_db.owner_url, "test owner") as owner:
        owner.execute(
            "create or replace function sumaclock.owner_has_access(organization_id text, user_id text) returns boolean"
            " language sql as $$ select case organization_id when 'barred' then false when 'unknown' then null"
            " else true end $$"
        )
    task = settled(app, add_task(app, organization_id=organization))
    assert task.status is TaskStatus.ACTIVE
    occurrence = make_due(app, task.id) if trigger == "clock" else None
    run = fired(app, task.id, trigger)
    assert (run.status, run.error) == (RunStatus.SKIPPED, reason)
    paused = settled(app, task.id)
    assert (paused.status, paused.status_reason, paused.next_run_at) == (TaskStatus.PAUSED, reason, None)
    (row,) = api.list_task_runs(app, task.id)
    assert (row.status, row.error, row.trigger.value) == ("skipped", reason, trigger)
    assert row.scheduled_for == (occurrence or run.scheduled_at)
    assert task_effects(app, task.id) == []
    assert clock_schedule(app_db, app, task.id) is None


def test_an_access_check_that_raises_is_asked_again_and_nothing_runs_meanwhile(app: Connection) -> None:
    task = settled(app, add_task(app, organization_id="unsure"))
    occurrence = make_due(app, task.id)
    run = fired(app, task.id)
    assert (run.status, run.attempts) == (RunStatus.FAILED, 3)
    assert run.error is not None
    assert "Given up after 3 attempts" in run.error
    assert "the directory is away" in run.error
    assert (task_effects(app, task.id), api.list_task_runs(app, task.id)) == ([], [])
    # It still waits for its occurrence.
    assert (api.get(app, task.id).status, api.get(app, task.id).next_run_at) == (TaskStatus.ACTIVE, occurrence)


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ({"cron": "0 9 * * FRI-MON"}, "FRI-MON"),
        ({"cron": "0 0 31 2 *"}, "31"),
        ({"cron": "0 25 * * *"}, "25"),
        ({"cron": "0 9 * * *", "timezone": "FOO3"}, "FOO3"),
    ],
)
def test_what_sql_cannot_know_makes_the_task_failed_at_once(
    app_db: AppDatabase, app: Connection, schedule: dict[str, str], reason: str
) -> None:
    task = settled(app, add_task(app, **schedule))
    assert (task.status, task.next_run_at) == (TaskStatus.FAILED, None)
    assert task.status_reason is not None
    assert reason in task.status_reason
    assert clock_schedule(app_db, app, task.id) is None
    call(app, "update_task", task_id=task.id, cron=WEEKLY, timezone="Europe/Madrid")
    assert settled(app, task.id).status is TaskStatus.ACTIVE


@pytest.mark.parametrize("column", ["timezone", "cron"])
def test_rule_13_a_zone_or_cron_that_stopped_resolving_pauses_its_task_alone(
    app_db: AppDatabase, app: Connection, column: str
) -> None:
    broken, other = settled(app, add_task(app)), settled(app, add_task(app))
    value = {"timezone": "Mars/Phobos", "cron": "0 0 31 2 *"}[column]
    app.execute(f"update sumaclock.ai_tasks set {column} = %s where id = %s", [value, broken.id])  # type: ignore[arg-type]
    make_due(app, broken.id)
    make_due(app, other.id)
    with app.transaction():
        ids = fire(app, broken.id) + fire(app, other.id)
    await_ended(app, ids)
    assert [get_run(app, run_id).status for run_id in ids] == [RunStatus.FAILED, RunStatus.DONE]
    paused = api.get(app, broken.id)
    assert (paused.status, paused.next_run_at) == (TaskStatus.PAUSED, None)
    assert paused.status_reason is not None
    assert value.split(" ")[-3:][0] in paused.status_reason
    assert clock_schedule(app_db, app, broken.id) is None
    assert (task_effects(app, broken.id), len(task_effects(app, other.id))) == ([], 1)


def test_other_zone_data_places_the_task_again(app_db: AppDatabase, app: Connection) -> None:
    task = settled(app, add_task(app))
    assert task.next_run_at is not None
    wrong = task.next_run_at + timedelta(hours=1)
    app.execute("update sumaclock.ai_tasks set zone_data = '2001a', next_run_at = %s where id = %s", [wrong, task.id])
    assert fired(app, task.id).status is RunStatus.SKIPPED
    row = app.execute("select zone_data from sumaclock.ai_tasks where id = %s", [task.id]).fetchone()
    assert (api.get(app, task.id).next_run_at, row) == (task.next_run_at, (zone_data_version(),))
    assert clock_schedule(app_db, app, task.id) == pg_cron_for(task.next_run_at)


def test_two_people_edit_at_once(app_db: AppDatabase, app: Connection) -> None:
    task = settled(app, add_task(app))
    with connect(app_db.app_url, "test second") as second, ThreadPoolExecutor(1) as pool:
        with app.transaction():
            call(app, "update_task", task_id=task.id, cron="1 1 * * *")
            other = pool.submit(call, second, "update_task", task_id=task.id, cron="2 2 * * *", title="second")
            waits = "select wait_event_type from pg_stat_activity where application_name = 'test second'"
            until(lambda: app.execute(waits).fetchone() == ("Lock",), 10, "the second to wait for the first")
        other.result(10)
    after = settled(app, task.id)
    assert (after.cron, after.title) == ("2 2 * * *", "second")
    assert after.next_run_at == preview(parse_schedule("2 2 * * *"), now(app), 1)[0].occurrence
    assert clock_schedule(app_db, app, task.id) == pg_cron_for(after.next_run_at)


def test_many_edits_at_once_leave_the_clock_job_of_the_last(app_db: AppDatabase, app: Connection) -> None:
    task = settled(app, add_task(app))

    def edit(editor: int) -> None:
        with connect(app_db.app_url, "test editor") as conn:
            for turn in range(5):
                call(conn, "update_task", task_id=task.id, cron=f"{editor} {turn} * * *")
                call(conn, "pause_task" if turn % 2 else "resume_task", task_id=task.id)
            call(conn, "resume_task", task_id=task.id)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(edit, range(6)))
    after = settled(app, task.id)
    assert after.next_run_at == preview(parse_schedule(after.cron), now(app), 1)[0].occurrence
    assert clock_schedule(app_db, app, task.id) == pg_cron_for(after.next_run_at)
    assert is_enabled(app, task.id)


def test_a_request_that_is_tried_again_stays_a_request(app: Connection) -> None:
    task = settled(app, add_task(app))
    row = app.execute(
        "update sumaclock.cron_runs set status = 'failed', result = null, error = 'x' where job_id = %s returning id",
        [task.cron_job_id],
    ).fetchone()
    assert row is not None
    retry_run(app, row[0])
    await_ended(app, [row[0]])
    assert (get_run(app, row[0]).status, task_effects(app, task.id)) == (RunStatus.DONE, [])


def test_a_preview_of_a_schedule_that_is_no_task(app: Connection) -> None:
    good = call(app, "request_preview", cron="30 2 * * *", count=40, language="es")
    bad = call(app, "request_preview", cron="0 0 31 2 *")
    until(lambda: call(app, "preview_result", request=bad)["status"] != "pending", 10, "the answers")
    answer = call(app, "preview_result", request=good)
    assert (answer["status"], len(answer["lines"])) == ("done", 40)
    lines = preview(parse_schedule("30 2 * * *"), now(app), 1)
    assert datetime.fromisoformat(answer["lines"][0]["at"]) == lines[0].occurrence
    assert "Madrid" in answer["words"]
    refused = call(app, "preview_result", request=bad)
    assert refused["status"] == "failed"
    assert "31" in refused["error"]
    app.execute("update sumaclock.preview_requests set created_at = now() - interval '2 days'")
    again = call(app, "request_preview", instant=minute(app, days=2))
    until(lambda: call(app, "preview_result", request=again)["status"] == "done", 10, "the answer")
    assert app.execute("select count(*) from sumaclock.preview_requests").fetchone() == (1,)
