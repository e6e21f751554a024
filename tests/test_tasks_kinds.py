"""Task kinds: their effect and its record are one transaction, whatever they return, raise or break."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from sumaclock_dagster.calendar import pg_cron_for
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.model import Failed, Policy, RetryLater, RunStatus, Skip, SumaclockError
from sumaclock_dagster.outbox import queue_delivery
from sumaclock_dagster.queue.runs import get_run, retry_run
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.access import load_access_check
from sumaclock_dagster.tasks.kinds import TaskKinds, TaskRun, load_task_kinds
from sumaclock_dagster.tasks.own_kinds import own_task_kinds
from sumaclock_dagster.tasks.records import TaskStatus
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.tasks import (
    add_task,
    call,
    clock_schedule,
    core_api_keys,
    effect_kinds,
    fired,
    make_due,
    make_task_effects,
    settled,
    task_effects,
    task_worker,
)
from tests.waiting import until
from tests.workers import await_ended


def hostile_kinds() -> TaskKinds:
    """Kinds that write an effect and then do what they must not, or end otherwise than done."""
    kinds = effect_kinds()
    kinds.add(own_task_kinds(queue_delivery)["core_api"])
    write = kinds["effect"].function

    def add(name: str, ending: Any, policy: dict[str, Any] | None = None) -> None:
        @kinds.register(name, **(policy or {}))
        def kind(run: TaskRun) -> Any:
            write(run)
            return ending(run)

    def raise_exit(run: TaskRun) -> None:
        raise SystemExit(3)

    def swallow(run: TaskRun) -> str:
        try:
            run.connection.execute("select 1 / 0")
        except Exception:  # noqa: BLE001  (that is what it is about)
            return "all is well"
        return "not reached"

    def commit_and_begin(run: TaskRun) -> None:
        run.connection.execute("commit")
        run.connection.execute("begin")

    add("skips", lambda run: Skip("nobody is there"))
    add("fails", lambda run: Failed("no such customer"))
    add("later", lambda run: RetryLater(0.05, "not yet") if run.attempt < 3 else "at last")
    add("never", lambda run: RetryLater(0.05, "not yet"))
    add("exits", raise_exit)
    add("swallows", swallow)
    add("nul", lambda run: {"text": "a\0b", "nan": float("nan"), "object": object()})
    add("commits", lambda run: run.connection.execute("commit"), {"max_attempts": 3})
    add("commits_and_begins", commit_and_begin, {"max_attempts": 3})
    add("commits_by_method", lambda run: run.connection.commit())
    add("closes", lambda run: run.connection.close() if run.attempt == 1 else "behaves", {"max_attempts": 1})
    return kinds


@pytest.fixture(scope="module")
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    """One database and one worker for all: each test has its own tasks."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        made = make_app_database(cluster, name)
        with connect(made.superuser_url, "test superuser") as superuser:
            make_task_effects(superuser)
        with task_worker(made, hostile_kinds(), task_kinds="tests.test_tasks_kinds:user_kinds"):
            yield made
    finally:
        drop_app_database(cluster, name)


def user_kinds() -> TaskKinds:
    kinds = TaskKinds()

    @kinds.register("of_a_user")
    def of_a_user(run: TaskRun) -> dict[str, str]:
        return {"title": run.title, "key": run.idempotency_key, "owner": f"{run.organization_id}/{run.user_id}"}

    return kinds


def test_a_raise_is_tried_again_by_the_kinds_policy(app: Connection) -> None:
    task = settled(app, add_task(app, {"raise_until": 3}))
    occurrence = make_due(app, task.id)
    run = fired(app, task.id)
    assert (run.status, run.attempts) == (RunStatus.DONE, 3)
    # The effects of the attempts that raised were rolled back with them.
    assert task_effects(app, task.id) == [(occurrence, "clock")]
    assert app.execute("select attempt from public.task_effects where task_id = %s", [task.id]).fetchall() == [(3,)]
    assert len(api.list_task_runs(app, task.id)) == 1


@pytest.mark.parametrize("payload", [{"raise_until": 99}, {"break_sql": True}])
def test_a_raise_in_the_last_attempt_fails_the_occurrence_and_the_task_goes_on(
    app_db: AppDatabase, app: Connection, payload: dict[str, Any]
) -> None:
    task = settled(app, add_task(app, payload))
    occurrence = make_due(app, task.id)
    run = fired(app, task.id)
    assert (run.status, run.attempts) == (RunStatus.FAILED, 3)
    assert (task_effects(app, task.id), core_api_keys(app, task.id)) == ([], [])
    (row,) = api.list_task_runs(app, task.id)
    assert (row.status, row.scheduled_for, row.error) == ("failed", occurrence, run.error)
    assert row.error is not None
    assert ("RuntimeError: not before" if "raise_until" in payload else "DivisionByZero") in row.error
    after = api.get(app, task.id)
    assert (after.status, after.next_run_at) == (TaskStatus.ACTIVE, task.next_run_at)
    assert clock_schedule(app_db, app, task.id) == pg_cron_for(task.next_run_at)  # type: ignore[arg-type]


def test_a_failed_occurrence_that_is_tried_again_by_hand_has_its_effect_once(app: Connection) -> None:
    task = settled(app, add_task(app, {"raise_until": 99}))
    occurrence = make_due(app, task.id)
    run = fired(app, task.id)
    (before,) = api.list_task_runs(app, task.id)
    call(app, "update_task", task_id=task.id, payload=Jsonb({}))
    app.execute("update sumaclock.cron_runs set scheduled_at = %s where id = %s", [occurrence, run.id])
    retry_run(app, run.id)
    await_ended(app, [run.id])
    assert get_run(app, run.id).status is RunStatus.DONE
    (after,) = api.list_task_runs(app, task.id)
    assert (after.id, after.status, after.idempotency_key) == (before.id, "done", before.idempotency_key)
    assert task_effects(app, task.id) == [(occurrence, "manual")]
    assert api.get(app, task.id).next_run_at == task.next_run_at


def test_an_instant_that_failed_is_failed(app: Connection) -> None:
    row = app.execute("select date_trunc('minute', now())").fetchone()
    assert row is not None
    task_id = add_task(app, {"raise_until": 99}, instant=row[0])
    until(lambda: api.list_task_runs(app, task_id), 10, "its task run")
    task = settled(app, task_id)
    assert (task.status, task.next_run_at) == (TaskStatus.FAILED, None)
    assert task.status_reason == "RuntimeError: not before attempt 99"
    call(app, "run_task_now", task_id=task_id)
    until(lambda: len(api.list_task_runs(app, task_id)) == 2, 10, "its second")
    assert [run.status for run in api.list_task_runs(app, task.id)] == ["failed", "failed"]


@pytest.mark.parametrize(
    ("kind", "status", "text", "effects", "attempts"),
    [
        ("skips", "skipped", "nobody is there", 0, 1),
        ("fails", "failed", "no such customer", 0, 1),
        ("later", "done", None, 1, 3),
        ("never", "failed", "Given up after 3 attempts: not yet", 0, 3),
        ("exits", "failed", "SystemExit: 3", 0, 1),
        ("swallows", "failed", "SumaclockError: A statement failed", 0, 1),
        ("nul", "done", None, 1, 1),
        ("commits", "failed", "ended the transaction", 1, 1),
        ("commits_and_begins", "failed", "ended the transaction", 1, 1),
        ("commits_by_method", "failed", "ProgrammingError", 0, 1),
        ("closes", "done", None, 1, 2),
        ("nowhere", "failed", "No task kind 'nowhere'", 0, 1),
    ],
)
def test_whatever_a_kind_does_its_occurrence_ends_and_the_task_goes_on(
    app: Connection, kind: str, status: str, text: str | None, effects: int, attempts: int
) -> None:
    task = settled(app, add_task(app, kind=kind))
    occurrence = make_due(app, task.id)
    run = fired(app, task.id)
    (row,) = api.list_task_runs(app, task.id)
    assert (row.status, row.scheduled_for, run.status.value, run.attempts) == (status, occurrence, status, attempts)
    assert (text or "") in (row.error or "")
    assert len(task_effects(app, task.id)) == len(core_api_keys(app, task.id)) == effects
    assert (api.get(app, task.id).status, api.get(app, task.id).next_run_at) == (TaskStatus.ACTIVE, task.next_run_at)


def test_rule_13_a_payload_that_python_cannot_read_fails_its_task_alone(app: Connection) -> None:
    bad, good = settled(app, add_task(app)), settled(app, add_task(app))
    huge = "update sumaclock.ai_tasks set payload = ('[1' || repeat('0', 5000) || ']')::jsonb where id = %s"
    app.execute(huge, [bad.id])
    make_due(app, bad.id)
    make_due(app, good.id)
    assert (fired(app, bad.id).status, fired(app, good.id).status) == (RunStatus.FAILED, RunStatus.DONE)
    (row,) = api.list_task_runs(app, bad.id)
    assert row.error is not None
    assert row.error.startswith("The payload can't be read")


def test_a_users_kinds_come_by_the_settings(app: Connection) -> None:
    task = settled(app, add_task(app, kind="of_a_user", title="Zahlungen fällig"))
    make_due(app, task.id)
    assert fired(app, task.id).status is RunStatus.DONE
    (row,) = api.list_task_runs(app, task.id)
    assert row.result == {"title": "Zahlungen fällig", "key": row.idempotency_key, "owner": "acme/ada"}


def test_core_api_writes_its_core_api_job_with_the_task_run(app: Connection) -> None:
    task = settled(app, add_task(app, {"path": "/reminders"}, kind="core_api"))
    make_due(app, task.id)
    assert fired(app, task.id).status is RunStatus.DONE
    (row,) = api.list_task_runs(app, task.id)
    assert row.result == {"queued": True, "idempotency_key": row.idempotency_key}
    jobs = app.execute(
        "select path, body ->> 'task_id', organization_id from sumaclock.core_api_jobs where idempotency_key = %s",
        [row.idempotency_key],
    ).fetchall()
    assert jobs == [("/reminders", str(task.id), "acme")]


@pytest.mark.parametrize(
    ("payload", "sent"),
    [
        ({"method": "PUT", "path": "/reminders/7", "body": {"a": [1]}}, ("PUT", "/reminders/7", {"a": [1]})),
        ({"body": None}, ("POST", "/ai-task-runs", None)),
    ],
)
def test_core_api_queues_what_the_payload_says(payload: Any, sent: Any) -> None:
    queued: list[dict[str, Any]] = []
    outcome = core_api(payload, queued)
    assert [(entry["method"], entry["path"], entry["body"]) for entry in queued] == [sent]
    assert (queued[0]["idempotency_key"], outcome.result["queued"]) == ("key", True)


def test_core_api_without_a_body_describes_the_task_run() -> None:
    queued: list[dict[str, Any]] = []
    core_api({"customer": 5}, queued)
    assert queued[0]["body"]["payload"] == {"customer": 5}
    assert set(queued[0]["body"]) == {
        "task_id",
        "title",
        "organization_id",
        "user_id",
        "scheduled_for",
        "trigger",
        "payload",
    }


@pytest.mark.parametrize(
    "payload", [{"method": "BREW"}, {"path": "no-slash"}, {"path": "//elsewhere.example"}, {"path": 5}]
)
def test_core_api_refuses_a_payload_that_names_no_request(payload: Any) -> None:
    assert isinstance(core_api(payload, None), Failed)


def core_api(payload: Any, queued: list[dict[str, Any]] | None) -> Any:
    """What the kind returns, with what it queues in `queued`; None: by the outbox itself, without a connection."""

    def queue(conn: Connection, **request: Any) -> bool:
        if queued is None:
            return queue_delivery(conn, **request)
        queued.append(request)
        return True

    run = SimpleNamespace(
        payload=payload,
        connection=None,
        idempotency_key="key",
        organization_id="acme",
        user_id="ada",
        task_id=uuid.uuid4(),
        title="t",
        scheduled_for=datetime.now(UTC),
        trigger=SimpleNamespace(value="clock"),
    )
    return own_task_kinds(queue)["core_api"].function(run)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("nowhere_at_all:kinds", "SUMACLOCK_TASK_KINDS entry 'nowhere_at_all:kinds': cannot import nowhere_at_all"),
        ("tests.tasks", "is not of the form package.module:attribute"),
        ("tests.tasks:nothing", "has no attribute 'nothing'"),
        ("tests.tasks:WEEKLY", "is str, not a sumaclock TaskKinds registry"),
        ("tests.tasks:effect_kinds, tests.tasks:effect_kinds", "Kind 'effect' has two handlers"),
    ],
)
def test_task_kinds_that_do_not_load(spec: str, text: str) -> None:
    with pytest.raises(SumaclockError, match=text.replace("(", r"\(")):
        load_task_kinds(spec, own_task_kinds())


def test_access_checks_load_or_say_why_not() -> None:
    check = load_access_check(" tests.tasks:check_access ")
    assert check is not None
    assert check.__name__ == "check_access"
    assert load_access_check("") is None
    with pytest.raises(SumaclockError, match=r"SUMACLOCK_ACCESS_CHECK 'tests.tasks:WEEKLY' is str, not a function"):
        load_access_check("tests.tasks:WEEKLY")
    with pytest.raises(SumaclockError, match=r"SUMACLOCK_ACCESS_CHECK 'tests.tasks' is not of the form"):
        load_access_check("tests.tasks")


def test_the_settings_tell_all_code_that_they_load() -> None:
    settings = Settings(handlers="a:b", task_kinds="c:d, e:f", access_check="g:h")
    assert settings.loaded_code == "a:b,c:d, e:f,g:h"
    assert own_task_kinds()["log"].policy == Policy()
