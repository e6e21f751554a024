"""Tasks as an app in any language meets them: SQL functions, their refusals, and the Python module that calls them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import TaskStatus, idempotency_key
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.once import FUNCTIONS
from tests.tasks import add_task, call

INVALID, UNKNOWN, STATE = (
    errors.InvalidParameterValue,
    errors.NoDataFound,
    errors.ObjectNotInPrerequisiteState,
)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
GOOD = {"organization_id": "acme", "user_id": "ada", "kind": "log", "cron": "0 9 * * *"}


@pytest.fixture(scope="module")
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    """One database for all, and no worker: these tests are about what happens before one comes."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        yield make_app_database(cluster, name)
    finally:
        drop_app_database(cluster, name)


@pytest.mark.parametrize(
    ("changed", "text", "hint"),
    [
        ({"organization_id": ""}, "1 to 200 characters", "owner"),
        ({"organization_id": None}, "1 to 200 characters", "owner"),
        ({"user_id": "x" * 201}, "1 to 200 characters", "owner"),
        ({"kind": ""}, "kind '' is not", "core_api"),
        ({"kind": None}, "kind null is not", "core_api"),
        ({"kind": "no spaces"}, "kind 'no spaces' is not", "core_api"),
        ({"title": "x" * 501}, "title takes 0 to 500 characters and has 501", "payload"),
        ({"title": None}, "title takes 0 to 500 characters and has none", "payload"),
        ({"payload": Jsonb("x" * 1_000_001)}, "up to 1,000,000 bytes of JSON and has 1000003", "elsewhere"),
        ({"payload": None}, "has none: it is null", "elsewhere"),
        ({"cron": None}, "either cron or instant, and neither was given", "0 9 * * MON"),
        ({"instant": NOON}, "either cron or instant, and both were given", "0 9 * * MON"),
        ({"cron": "0 9 * *"}, "cron '0 9 * *' does not have exactly five fields", "Minute, hour"),
        ({"cron": "0 0 9 * * *"}, "exactly five fields", "Minute, hour"),
        ({"cron": ""}, "exactly five fields", "Minute, hour"),
        ({"cron": "@daily"}, "exactly five fields", "Macros such as @daily"),
        ({"cron": "0 9 * * $"}, "exactly five fields", "Minute, hour"),
        ({"cron": "0 9 * * " + "1," * 130 + "1"}, "may have 255", "ranges"),
        ({"timezone": "Europe/Madird"}, "timezone 'Europe/Madird' is not known", "Europe/Madrid"),
        ({"timezone": None}, "timezone null is no name", "Europe/Madrid"),
        ({"timezone": "+02:00"}, "timezone '+02:00' is no name", "Europe/Madrid"),
        ({"timezone": "Europe/" + "x" * 60}, "is no name", "Europe/Madrid"),
        ({"cron": None, "instant": NOON.replace(second=1)}, "not on a whole minute", "date_trunc"),
        ({"cron": None, "instant": "infinity"}, "not on a whole minute that can be stored", "date_trunc"),
        ({"cron": None, "instant": "9999-01-01 00:00Z"}, "that can be stored", "date_trunc"),
        ({"cron": None, "instant": NOON.replace(year=2020)}, "has passed", "last hour"),
    ],
)
def test_create_task_refuses(app: Connection, changed: dict[str, Any], text: str, hint: str) -> None:
    with pytest.raises(INVALID) as refused:
        call(app, "create_task", **{**GOOD, **changed})
    assert text in (refused.value.diag.message_primary or "")
    assert hint in (refused.value.diag.message_hint or "")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"kind": "no spaces"}, "kind 'no spaces'"),
        ({"title": "x" * 501}, "has 501"),
        ({"payload": Jsonb("x" * 1_000_001)}, "1,000,000"),
        ({"cron": "0 9 * *"}, "five fields"),
        ({"cron": "0 9 * * *", "instant": NOON}, "both were given"),
        ({"timezone": "Europe/Madird"}, "not known"),
        ({"timezone": ""}, "is no name"),
        ({"instant": NOON.replace(microsecond=1)}, "whole minute"),
        ({"instant": NOON.replace(year=2020)}, "has passed"),
    ],
)
def test_update_task_refuses_what_create_task_refuses(app: Connection, changed: dict[str, Any], text: str) -> None:
    task = add_task(app)
    before = api.get(app, task)
    with pytest.raises(INVALID) as refused:
        call(app, "update_task", task_id=task, **changed)
    assert text in (refused.value.diag.message_primary or "")
    assert api.get(app, task) == before


@pytest.mark.parametrize(
    "function", ["update_task", "pause_task", "resume_task", "delete_task", "run_task_now", "preview_task"]
)
def test_what_does_not_exist_or_was_deleted_is_refused(app: Connection, function: str) -> None:
    deleted = add_task(app)
    call(app, "delete_task", task_id=deleted)
    for task in (uuid.uuid4(), deleted, None):
        with pytest.raises(UNKNOWN) as refused:
            app.execute(f"select * from sumaclock.{function}(task_id => %s::uuid)", [task])  # type: ignore[arg-type]
        assert str(task or "null") in (refused.value.diag.message_primary or "")
    with pytest.raises(UNKNOWN, match="no request for a preview"):
        call(app, "preview_result", request=10**12)


@pytest.mark.parametrize("status", ["done", "failed"])
def test_what_is_over_is_not_paused(app: Connection, status: str) -> None:
    task = with_status(app, add_task(app), status)
    with pytest.raises(STATE, match=f"is {status}, so there is nothing to pause"):
        call(app, "pause_task", task_id=task)


def test_what_is_done_or_has_passed_is_not_resumed(app: Connection) -> None:
    done = with_status(app, add_task(app), "done")
    with pytest.raises(STATE, match="is done, so there is nothing to resume"):
        call(app, "resume_task", task_id=done)
    passed = with_status(app, add_task(app, instant=NOON), "paused")
    app.execute("update sumaclock.ai_tasks set instant = date_trunc('minute', now()) where id = %s", [passed])
    with pytest.raises(STATE, match="has passed meanwhile"):
        call(app, "resume_task", task_id=passed)
    failed = with_status(app, add_task(app), "failed")
    call(app, "resume_task", task_id=failed)
    assert api.get(app, failed).status is TaskStatus.ACTIVE


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"cron": "0 9 * * *", "count": 0}, "count must be 1 to 100, not 0"),
        ({"cron": "0 9 * * *", "count": 101}, "not 101"),
        ({"cron": "0 9 * * *", "count": None}, "not null"),
        ({"cron": "0 9 * * *", "language": "english"}, "'english' is no code of two letters"),
        ({"cron": "0 9 * *"}, "five fields"),
        ({"cron": "0 9 * * *", "timezone": "Nowhere"}, "not known"),
        ({}, "neither was given"),
    ],
)
def test_request_preview_refuses(app: Connection, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(INVALID) as refused:
        call(app, "request_preview", **arguments)
    assert text in (refused.value.diag.message_primary or "")
    assert app.execute("select count(*) from sumaclock.preview_requests").fetchone() == (0,)


@pytest.mark.parametrize("count", [0, 11, None])
def test_preview_task_tells_up_to_ten(app: Connection, count: int | None) -> None:
    with pytest.raises(INVALID, match="count must be 1 to 10"):
        app.execute("select * from sumaclock.preview_task(%s, %s::integer)", [add_task(app), count])


def test_every_change_is_one_request_in_the_callers_transaction(app: Connection) -> None:
    with connect(app.info.dsn, "test listener") as listener:
        listener.execute("listen cron_runs")
        with app.transaction(force_rollback=True):
            add_task(app, organization_id="undone")
        assert api.list_tasks(app, organization_id="undone") == []
        assert list(listener.notifies(timeout=0)) == []
        task = api.get(app, add_task(app, cron="  0   9 * *\t1 "))
        assert len(list(listener.notifies(timeout=5, stop_after=1))) == 1
    assert (task.cron, task.status, task.next_run_at) == ("0 9 * * 1", TaskStatus.ACTIVE, None)
    call(app, "pause_task", task_id=task.id)
    call(app, "resume_task", task_id=task.id)
    call(app, "update_task", task_id=task.id, timezone="UTC")
    run = call(app, "run_task_now", task_id=task.id)
    call(app, "delete_task", task_id=task.id)
    triggers = app.execute(
        "select trigger::text, status::text from sumaclock.cron_runs where job_id = %s order by id", [task.cron_job_id]
    ).fetchall()
    assert triggers == [(name, "pending") for name in ["request"] * 4 + ["manual"] + ["request"]]
    assert app.execute("select trigger::text from sumaclock.cron_runs where id = %s", [run]).fetchone() == ("manual",)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("cron", None),
        ("instant", NOON),
        ("next_run_at", NOON.replace(second=5)),
        ("kind", "no spaces"),
        ("title", "x" * 501),
        ("timezone", ""),
        ("status", "failed"),
    ],
)
def test_impossible_tasks_are_impossible(app: Connection, column: str, value: Any) -> None:
    with pytest.raises(errors.CheckViolation):
        app.execute(f"update sumaclock.ai_tasks set {column} = %s where id = %s", [value, add_task(app)])  # type: ignore[arg-type]


def test_a_task_that_does_not_fire_has_no_next_occurrence(app: Connection) -> None:
    for change in ("status = 'paused'", "deleted_at = now()"):
        with pytest.raises(errors.CheckViolation, match="only_active_has_next"):
            app.execute(
                f"update sumaclock.ai_tasks set next_run_at = %s, {change} where id = %s",  # type: ignore[arg-type]
                [NOON, add_task(app)],
            )


def test_rule_7_an_occurrence_and_its_key_are_unique(app: Connection) -> None:
    task, other = add_task(app), add_task(app)
    insert = (
        "insert into sumaclock.ai_task_runs (task_id, scheduled_for, trigger, status, cron_run_id, idempotency_key,"
        " started_at, finished_at) values (%s, %s, 'clock', 'done', 1, %s, now(), now())"
    )
    key = idempotency_key(task, NOON)
    assert key == f"ai_task_run:{task}:2030-01-01T12:00Z"
    app.execute(insert, [task, NOON, key])
    with pytest.raises(errors.UniqueViolation, match="once_an_occurrence"):
        app.execute(insert, [task, NOON, "another key"])
    with pytest.raises(errors.UniqueViolation, match="idempotency_key"):
        app.execute(insert, [other, NOON, key])


def test_functions_are_for_the_app_role_alone(app: Connection, superuser: Connection) -> None:
    rows = superuser.execute(
        "select distinct coalesce(acl.grantee::regrole::text, 'nobody'), p.prosecdef, p.proconfig"
        " from pg_proc p, aclexplode(p.proacl) acl where p.pronamespace = 'sumaclock'::regnamespace"
        " and p.proname <> all (%s) and acl.grantee <> p.proowner",
        [["clock_settings", "oldest_transaction", *FUNCTIONS]],
    ).fetchall()
    assert rows == [("sumaclock_app", False, ["search_path=pg_catalog, pg_temp"])]
    uncommented = superuser.execute(
        "select proname from pg_proc p where pronamespace = 'sumaclock'::regnamespace"
        " and obj_description(p.oid, 'pg_proc') is null"
    ).fetchall()
    assert uncommented == []


def create(app: Connection, **changed: Any) -> UUID:
    return api.create(app, **{**GOOD, **changed})


def test_python_creates_changes_and_lists(app: Connection) -> None:
    org = f"org {uuid.uuid4()}"
    first = create(app, organization_id=org, title="á", payload=[1, None], timezone="Asia/Kathmandu")
    second = create(app, organization_id=org, user_id="bob", cron=None, instant=NOON)
    task = api.get(app, first)
    assert (task.title, task.payload, task.cron, task.timezone) == ("á", [1, None], "0 9 * * *", "Asia/Kathmandu")
    assert (api.get(app, second).instant, api.get(app, second).payload) == (NOON, {})
    api.update(app, first, title="b", payload=None, cron="1 1 1 1 *")
    task = api.get(app, first)
    assert (task.title, task.payload, task.cron, task.kind) == ("b", None, "1 1 1 1 *", "log")
    api.update(app, first, timezone="UTC", kind="effect")
    assert (api.get(app, first).timezone, api.get(app, first).payload) == ("UTC", None)
    api.pause(app, first, "later")
    assert [task.id for task in api.list_tasks(app, organization_id=org)] == [second, first]
    assert [task.id for task in api.list_tasks(app, organization_id=org, status=TaskStatus.PAUSED)] == [first]
    assert [task.id for task in api.list_tasks(app, organization_id=org, user_id="bob", kind="log")] == [second]
    assert api.list_tasks(app, organization_id=org, limit=1)[0].id == second
    api.resume(app, first)
    assert api.run_now(app, first) > 0
    assert (api.preview(app, first), api.list_task_runs(app, first)) == ([], [])
    api.delete(app, first)
    assert [task.id for task in api.list_tasks(app, organization_id=org)] == [second]
    assert [task.id for task in api.list_tasks(app, organization_id=org, deleted=True)] == [first]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"cron": "0 9 * * FRI-MON"}, "FRI-MON"),
        ({"cron": "0 0 31 2 *"}, "31"),
        ({"timezone": "FOO3"}, "no such zone"),
        ({"instant": NOON}, "both were given"),
        ({"cron": None, "instant": NOON.replace(tzinfo=None)}, "no UTC offset"),
        ({"cron": None, "instant": NOON.replace(year=2020)}, "has passed"),
        ({"payload": {"a": float("nan")}}, "payload.a is nan"),
        ({"title": "a\0b"}, "NUL"),
        ({"kind": "no spaces"}, "Give the name of a task kind"),
    ],
)
def test_python_refuses_and_leaves_the_callers_transaction_as_it_was(
    app: Connection, changed: dict[str, Any], text: str
) -> None:
    with app.transaction():
        task = create(app)
        with pytest.raises(SumaclockError, match=text):
            create(app, **changed)
        with pytest.raises(SumaclockError, match=text):
            api.update(app, task, **changed) if changed != {"instant": NOON} else create(app, **changed)
        assert app.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS
    assert api.get(app, task).cron == "0 9 * * *"


def test_python_says_what_is_unknown(app: Connection) -> None:
    nobody = uuid.uuid4()
    for refused in (api.get, api.pause, api.resume, api.delete, api.run_now, api.preview, api.update):
        with pytest.raises(SumaclockError, match=f"There is no task {nobody}"):
            refused(app, nobody)  # type: ignore[operator]
    done = with_status(app, add_task(app), "done")
    with pytest.raises(SumaclockError, match="Only an active task can be paused"):
        api.pause(app, done)


def with_status(app: Connection, task: UUID, status: str) -> UUID:
    app.execute("update sumaclock.ai_tasks set status = %s, status_reason = 'x' where id = %s", [status, task])
    return task
