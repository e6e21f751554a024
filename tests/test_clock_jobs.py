"""Jobs: row and clock job together, through refusals, crashes in between, and two people at once."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors

from sumaclock_dagster.clock.jobs import (
    DeletedJob,
    change_job,
    count_runs,
    create_job,
    delete_job,
    get_job,
    list_jobs,
    pause_job,
    resume_job,
)
from sumaclock_dagster.clock.payload import MAX_BYTES
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection, connect, with_database
from sumaclock_dagster.model import Job, RunStatus, SumaclockError
from sumaclock_dagster.queue.runs import fire
from tests.clock_crash import NEW, OLD
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.waiting import until


@pytest.fixture
def clock(app: Connection, app_db: AppDatabase) -> Iterator[Clock]:
    with open_clock(app, app_db.cron_url) as clock:
        yield clock


def add(app: Connection, clock: Clock, **changes: Any) -> Job:
    values = {"kind": "k", "organization_id": "o", "user_id": "u", "payload": {}, "schedule": OLD}
    return create_job(app, clock, **{**values, **changes})


def placed(clock: Clock) -> dict[UUID, str]:
    return {found.job_id: found.schedule for found in clock.listed()}


def test_a_job_lives_from_creation_to_deletion(app: Connection, clock: Clock) -> None:
    job = add(app, clock, kind="invoice_due", organization_id="acme", user_id="ana", payload={"ñ": [1, None, 0.5, "€"]})
    assert (job.kind, job.organization_id, job.user_id, job.schedule) == ("invoice_due", "acme", "ana", OLD)
    assert (job.payload, job.enabled) == ({"ñ": [1, None, 0.5, "€"]}, True)
    assert get_job(app, job.id) == job
    assert placed(clock) == {job.id: OLD}

    changed = change_job(app, clock, job.id, schedule=NEW)
    assert (changed.schedule, changed.payload, changed.kind) == (NEW, job.payload, "invoice_due")
    assert changed.updated_at > job.updated_at
    assert placed(clock) == {job.id: NEW}
    assert change_job(app, clock, job.id, payload=None).payload is None
    assert change_job(app, clock, job.id, kind="other").kind == "other"

    assert not pause_job(app, clock, job.id).enabled
    assert not pause_job(app, clock, job.id).enabled
    assert placed(clock) == {}
    assert change_job(app, clock, job.id, schedule=OLD).schedule == OLD
    assert placed(clock) == {}, "a change does not resume"
    assert resume_job(app, clock, job.id).enabled
    assert resume_job(app, clock, job.id).enabled
    assert placed(clock) == {job.id: OLD}

    gone = delete_job(app, clock, job.id)
    assert isinstance(gone, DeletedJob)
    assert (gone.job.id, gone.runs) == (job.id, {})
    assert placed(clock) == {}
    assert list_jobs(app) == []


def test_a_paused_job_is_created_without_a_clock_job(app: Connection, clock: Clock) -> None:
    assert not add(app, clock, enabled=False).enabled
    assert placed(clock) == {}


def test_delete_tells_what_went_with_the_job(app: Connection, clock: Clock) -> None:
    job, other = add(app, clock), add(app, clock)
    runs = [fire(app, job.id) for _ in range(6)]
    kept = fire(app, other.id)
    end = (
        "update sumaclock.cron_runs set status = %s, started_at = now(), finished_at = now(), claimed_by = 1,"
        " attempts = 1, error = %s where id = %s"
    )
    app.execute(end, ["done", None, runs[0]])
    app.execute(end, ["failed", "E", runs[1]])
    app.execute(end, ["failed", "E", runs[2]])
    expected = {RunStatus.DONE: 1, RunStatus.FAILED: 2, RunStatus.PENDING: 3}
    assert count_runs(app, job.id) == expected
    assert delete_job(app, clock, job.id).runs == expected
    assert app.execute("select id from sumaclock.cron_runs").fetchall() == [(kept,)]


def test_lists_filter_and_come_newest_first(app: Connection, clock: Clock) -> None:
    jobs = [
        add(app, clock, kind=kind, organization_id=organization, enabled=enabled)
        for kind in ("a", "b")
        for organization in ("x", "y")
        for enabled in (True, False)
    ]
    newest_first = [job.id for job in reversed(jobs)]
    assert [job.id for job in list_jobs(app)] == newest_first
    assert [job.id for job in list_jobs(app, limit=3)] == newest_first[:3]
    found = list_jobs(app, kind="a", organization_id="y", enabled=False)
    assert [(job.kind, job.organization_id, job.enabled) for job in found] == [("a", "y", False)]


def test_an_unknown_job_is_an_error_everywhere(app: Connection, clock: Clock) -> None:
    unknown = uuid4()
    for attempt in (
        lambda: get_job(app, unknown),
        lambda: change_job(app, clock, unknown, schedule=NEW),
        lambda: pause_job(app, clock, unknown),
        lambda: resume_job(app, clock, unknown),
        lambda: delete_job(app, clock, unknown),
    ):
        with pytest.raises(SumaclockError, match=f"There is no job {unknown}"):
            attempt()
    assert placed(clock) == {}


# ---- refusals ----


@pytest.fixture(scope="module")
def empty(cluster: TestCluster) -> Iterator[tuple[Connection, Clock]]:
    """A database that many refusals share, since each leaves it empty."""
    name = f"t_{uuid4().hex[:10]}"
    try:
        app_db = make_app_database(cluster, name)
        with connect(app_db.app_url, "test refusals") as app, open_clock(app, app_db.cron_url) as clock:
            yield app, clock
    finally:
        drop_app_database(cluster, name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": ""}, "kind must be 1 to 100"),
        ({"kind": "two words"}, "kind must be 1 to 100"),
        ({"kind": "k\n"}, "kind must be 1 to 100"),
        ({"kind": "k" * 101}, "kind must be 1 to 100"),
        ({"kind": None}, "kind must be text"),
        ({"kind": "k\0"}, "kind contains a NUL"),
        ({"organization_id": ""}, "organization id must have 1 to 200"),
        ({"organization_id": "o" * 201}, "organization id must have 1 to 200"),
        ({"organization_id": "\ud800"}, "organization id contains a lone surrogate"),
        ({"organization_id": 7}, "organization id must be text, not int"),
        ({"user_id": ""}, "user id must have 1 to 200"),
        ({"user_id": "u" * 201}, "user id must have 1 to 200"),
        ({"user_id": "\0"}, "user id contains a NUL"),
        ({"schedule": "0 9 * * FRI-MON"}, "backwards"),
        ({"schedule": None}, "schedule must be text"),
        ({"schedule": "0 0 \0 * *"}, "schedule contains a NUL"),
        ({"payload": "a\0b"}, "payload contains a NUL"),
        ({"payload": {"a": [{"b": "\0"}]}}, r"payload\.a\[0\]\.b contains a NUL"),
        ({"payload": {"\0": 1}}, "a key of payload contains a NUL"),
        ({"payload": ["\udc80"]}, r"payload\[0\] contains a lone surrogate"),
        ({"payload": float("nan")}, "payload is nan"),
        ({"payload": {"x": float("-inf")}}, r"payload\.x is -inf"),
        ({"payload": {1: 2}}, "key of type int"),
        ({"payload": {"when": datetime(2026, 1, 1, tzinfo=UTC)}}, r"payload\.when is of type datetime"),
        ({"payload": [Decimal(1)]}, r"payload\[0\] is of type Decimal"),
        ({"payload": {1, 2}}, "payload is of type set"),
        ({"payload": b"bytes"}, "payload is of type bytes"),
        ({"payload": 10**1000}, "over 1,000 digits"),
        ({"payload": "x" * MAX_BYTES}, "1000002 bytes"),
        ({"payload": "€" * (MAX_BYTES // 3)}, "1000001 bytes"),
    ],
    ids=str,
)
def test_what_cannot_be_stored_is_refused_clearly(
    empty: tuple[Connection, Clock], changes: dict[str, Any], words: str
) -> None:
    app, clock = empty
    with pytest.raises(SumaclockError, match=words):
        add(app, clock, **changes)
    assert list_jobs(app) == []
    assert placed(clock) == {}


def test_a_payload_nested_without_end_is_refused(app: Connection, clock: Clock) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(SumaclockError, match="nested over 100 levels"):
        add(app, clock, payload=endless)
    assert list_jobs(app) == []


def test_a_change_is_refused_by_the_same_rules_and_changes_nothing(app: Connection, clock: Clock) -> None:
    job = add(app, clock, payload={"a": 1})
    for changes in (
        {"schedule": "@daily"},
        {"payload": float("inf")},
        {"kind": "two words"},
        {"schedule": NEW, "kind": "two words"},
        {"schedule": NEW, "payload": "\0"},
    ):
        with pytest.raises(SumaclockError):
            change_job(app, clock, job.id, **changes)
    assert get_job(app, job.id) == job
    assert placed(clock) == {job.id: OLD}


def test_an_id_is_taken_once(app: Connection, clock: Clock) -> None:
    job = add(app, clock, job_id=uuid4())
    with pytest.raises(SumaclockError, match="id exists already"):
        add(app, clock, job_id=job.id, schedule=NEW)
    assert placed(clock) == {job.id: OLD}


def test_errors_show_no_payload(app: Connection, clock: Clock) -> None:
    with pytest.raises(SumaclockError) as caught:
        add(app, clock, kind="two words", payload={"token": "geheim"})
    assert "geheim" not in repr(caught.value)
    assert caught.value.__suppress_context__


def test_a_database_that_is_not_migrated_says_so(app_db: AppDatabase, clock: Clock) -> None:
    with connect(with_database(app_db.app_url, "postgres"), "test") as elsewhere:
        for attempt in (lambda: list_jobs(elsewhere), lambda: add(elsewhere, clock)):
            with pytest.raises(SumaclockError, match="sumaclock migrate"):
                attempt()
    assert placed(clock) == {}


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(-1e15, 1e15)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\\\"'{}%€", max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_payload_that_passes_is_stored_unchanged(app: Connection, clock: Clock, payload: Any) -> None:
    job = add(app, clock, payload=payload, enabled=False)
    assert get_job(app, job.id).payload == payload


# ---- crashes in between ----


def crash(app_db: AppDatabase, point: str, change: str, job_id: UUID) -> None:
    command = [sys.executable, "-m", "tests.clock_crash", app_db.app_url, app_db.cron_url, app_db.name]
    ended = subprocess.run([*command, point, change, str(job_id)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == -9, ended.stderr


@pytest.mark.parametrize(
    ("change", "point", "row", "clock_job"),
    [
        ("create", "before", None, None),
        ("create", "after", None, OLD),
        ("change", "before", (True, OLD), OLD),
        ("change", "after", (True, OLD), NEW),
        ("pause", "before", (False, OLD), OLD),
        ("pause", "after", (False, OLD), None),
        ("resume", "before", (False, OLD), None),
        ("resume", "after", (False, OLD), OLD),
        ("delete", "before", None, OLD),
        ("delete", "after", None, None),
    ],
)
def test_a_killed_process_leaves_no_row_that_silently_does_not_fire(
    app: Connection,
    app_db: AppDatabase,
    superuser: Connection,
    clock: Clock,
    change: str,
    point: str,
    row: tuple[bool, str] | None,
    clock_job: str | None,
) -> None:
    job_id = uuid4()
    if change != "create":
        add(app, clock, job_id=job_id)
    if change == "resume":
        pause_job(app, clock, job_id)
    crash(app_db, point, change, job_id)
    sessions = "select count(*) from pg_stat_activity where application_name = 'test crash'"
    until(lambda: superuser.execute(sessions).fetchone() == (0,), what="the end of the dead process's session")

    stored = app.execute("select enabled, schedule from sumaclock.cron_jobs where id = %s", [job_id]).fetchone()
    assert (stored, placed(clock).get(job_id)) == (row, clock_job)
    assert not (stored and stored[0] and clock_job is None), "an enabled row must have a clock job"

    # Whatever was left, doing it again finishes it.
    if change == "delete":
        with pytest.raises(SumaclockError, match="There is no job"):
            delete_job(app, clock, job_id)
    elif change == "create":
        add(app, clock, job_id=job_id)
    else:
        {"change": resume_job, "pause": pause_job, "resume": resume_job}[change](app, clock, job_id)
    enabled = change in ("create", "change", "resume")
    assert placed(clock) == ({job_id: OLD} if enabled else {})


def test_a_clock_job_without_its_row_fires_for_nothing(app: Connection, clock: Clock, app_db: AppDatabase) -> None:
    job_id = uuid4()
    crash(app_db, "after", "create", job_id)
    [found] = clock.listed()
    with pytest.raises(errors.ForeignKeyViolation):
        app.execute(found.command)
    assert app.execute("select count(*) from sumaclock.cron_runs").fetchone() == (0,)


@pytest.mark.parametrize("change", ["create", "change", "resume"])
def test_a_session_that_ends_at_its_commit_leaves_the_clock_job_only(
    app: Connection, app_db: AppDatabase, superuser: Connection, clock: Clock, change: str
) -> None:
    """The commit waits for a lock that the test holds, and the server ends the session there."""
    job_id = uuid4()
    if change != "create":
        add(app, clock, job_id=job_id, enabled=change == "change")
    superuser.execute(
        "create function public.wait_at_commit() returns trigger language plpgsql as"
        " 'begin perform pg_advisory_xact_lock(4711); return null; end'"
    )
    superuser.execute(
        "create constraint trigger wait_at_commit after insert or update on sumaclock.cron_jobs"
        " deferrable initially deferred for each row execute function public.wait_at_commit()"
    )
    superuser.execute("grant usage on schema public to sumaclock_app")
    superuser.execute("select pg_advisory_lock(4711)")

    def do() -> None:
        with connect(app_db.app_url, "test doomed") as doomed, open_clock(doomed, app_db.cron_url) as own:
            if change == "create":
                add(doomed, own, job_id=job_id)
            elif change == "change":
                change_job(doomed, own, job_id, schedule=NEW)
            else:
                resume_job(doomed, own, job_id)

    waiting = (
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'test doomed' and wait_event_type = 'Lock' and wait_event = 'advisory'"
    )
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(do)
        until(lambda: superuser.execute(waiting).fetchall(), what="the commit to wait")
        with pytest.raises(psycopg.OperationalError):
            done.result(30)
    superuser.execute("select pg_advisory_unlock(4711)")

    stored = app.execute("select enabled, schedule from sumaclock.cron_jobs where id = %s", [job_id]).fetchone()
    assert stored == {"create": None, "change": (True, OLD), "resume": (False, OLD)}[change]
    assert placed(clock) == {job_id: NEW if change == "change" else OLD}


def test_without_the_clock_nothing_is_created_or_resumed_and_pausing_says_so(
    app: Connection, app_db: AppDatabase, clock: Clock
) -> None:
    job = add(app, clock)
    off = add(app, clock, enabled=False)
    with Clock("postgresql://sumaclock_app@127.0.0.1:1/postgres", app_db.name) as broken:
        with pytest.raises(SumaclockError, match="Cannot connect"):
            add(app, broken)
        with pytest.raises(SumaclockError, match="Cannot connect"):
            change_job(app, broken, job.id, schedule=NEW)
        with pytest.raises(SumaclockError, match="Cannot connect"):
            resume_job(app, broken, off.id)
        assert {found.id: (found.enabled, found.schedule) for found in list_jobs(app)} == {
            job.id: (True, OLD),
            off.id: (False, OLD),
        }
        assert change_job(app, broken, job.id, payload=[1]).payload == [1]
        with pytest.raises(SumaclockError, match=r"is paused, but its clock job is still there.*Repeat"):
            pause_job(app, broken, job.id)
        assert (get_job(app, job.id).enabled, placed(clock)) == (False, {job.id: OLD})
        with pytest.raises(SumaclockError, match=r"is deleted, but its clock job is still there.*Repeat"):
            delete_job(app, broken, job.id)
    with pytest.raises(SumaclockError, match="There is no job"):
        delete_job(app, clock, job.id)
    assert placed(clock) == {}


# ---- a caller's transaction ----


def test_changes_join_a_transaction_of_the_caller(app: Connection, clock: Clock) -> None:
    with app.transaction():
        created = add(app, clock)
        changed = add(app, clock)
        change_job(app, clock, changed.id, schedule=NEW)
    assert {job.id for job in list_jobs(app)} == {created.id, changed.id}
    assert placed(clock) == {created.id: OLD, changed.id: NEW}
    with app.transaction():
        pause_job(app, clock, created.id)
        delete_job(app, clock, changed.id)
    assert [(job.id, job.enabled) for job in list_jobs(app)] == [(created.id, False)]
    assert placed(clock) == {created.id: OLD, changed.id: NEW}, "not before the commit, so the caller does it after"
    clock.unschedule(created.id)
    clock.unschedule(changed.id)
    assert placed(clock) == {}


def test_a_caller_that_rolls_back_still_has_jobs_that_fire(app: Connection, clock: Clock) -> None:
    kept = add(app, clock)
    with app.transaction(force_rollback=True):
        pause_job(app, clock, kept.id)
        delete_job(app, clock, kept.id)
        orphan = add(app, clock)
    assert [(job.id, job.enabled) for job in list_jobs(app)] == [(kept.id, True)]
    assert placed(clock) == {kept.id: OLD, orphan.id: OLD}


# ---- two people at once ----


def test_two_people_editing_wait_for_each_other(app: Connection, app_db: AppDatabase, clock: Clock) -> None:
    job = add(app, clock)
    with connect(app_db.app_url, "test other") as other, open_clock(other, app_db.cron_url) as own:
        with ThreadPoolExecutor(1) as pool, app.transaction():
            change_job(app, clock, job.id, schedule=NEW, payload="first")
            second = pool.submit(change_job, other, own, job.id, schedule="9 9 9 9 *")
            waiting = (
                "select 1 from pg_stat_activity where application_name = 'test other' and wait_event_type = 'Lock'"
            )
            until(lambda: app.execute(waiting).fetchone(), what="the second edit to wait")
        found = second.result(30)
    assert (found.schedule, found.payload) == ("9 9 9 9 *", "first")
    assert placed(clock) == {job.id: "9 9 9 9 *"}


class GatedClock(Clock):
    """Stops where it is about to remove a clock job, until it is let through."""

    def __init__(self, app_db: AppDatabase) -> None:
        super().__init__(app_db.cron_url, app_db.name)
        self.reached, self.opened = threading.Event(), threading.Event()

    def unschedule(self, job_id: UUID) -> None:
        self.reached.set()
        assert self.opened.wait(30)
        super().unschedule(job_id)


@pytest.mark.parametrize(("undo", "redo"), [(pause_job, resume_job), (delete_job, add)])
def test_what_brings_a_job_back_waits_until_its_clock_job_is_gone(
    app: Connection, app_db: AppDatabase, clock: Clock, undo: Callable[..., object], redo: Callable[..., object]
) -> None:
    job_id = add(app, clock).id
    waiting = "select 1 from pg_stat_activity where application_name = 'test redo' and wait_event = 'advisory'"
    with (
        connect(app_db.app_url, "test undo") as undoing,
        connect(app_db.app_url, "test redo") as redoing,
        GatedClock(app_db) as gated,
        ThreadPoolExecutor(2) as pool,
    ):
        undone = pool.submit(undo, undoing, gated, job_id)
        assert gated.reached.wait(30)
        redone = pool.submit(redo, redoing, clock, job_id=job_id)
        until(lambda: redone.done() or app.execute(waiting).fetchone(), what="the second change to wait or end")
        gated.opened.set()
        undone.result(30)
        redone.result(30)
    assert get_job(app, job_id).enabled
    assert placed(clock) == {job_id: OLD}


@pytest.mark.parametrize(("undo", "redo"), [(pause_job, resume_job), (delete_job, add)])
def test_a_job_that_is_back_before_its_clock_job_was_removed_keeps_it(
    app: Connection,
    app_db: AppDatabase,
    superuser: Connection,
    clock: Clock,
    undo: Callable[..., object],
    redo: Callable[..., object],
) -> None:
    """A held row keeps the first change waiting until the second stands in line, so it comes right after the commit."""
    job_id = add(app, clock).id
    waits = "select 1 from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'"
    with (
        connect(app_db.app_url, "test undo") as undoing,
        connect(app_db.app_url, "test redo") as redoing,
        open_clock(undoing, app_db.cron_url) as own,
        ThreadPoolExecutor(2) as pool,
    ):
        with superuser.transaction():
            superuser.execute("select from sumaclock.cron_jobs where id = %s for update", [job_id])
            undone = pool.submit(undo, undoing, own, job_id)
            until(lambda: app.execute(waits, ["test undo"]).fetchone(), what="the first change to wait")
            redone = pool.submit(redo, redoing, clock, job_id=job_id)
            until(lambda: app.execute(waits, ["test redo"]).fetchone(), what="the second change to wait")
        undone.result(30)
        redone.result(30)
    assert get_job(app, job_id).enabled
    assert placed(clock) == {job_id: OLD}


def test_any_mix_of_changes_at_once_ends_with_row_and_clock_job_alike(
    app: Connection, app_db: AppDatabase, clock: Clock
) -> None:
    ids = [uuid4() for _ in range(2)]

    def change_at_random(seed: int) -> int:
        rng = random.Random(seed)
        done = 0
        with connect(app_db.app_url, "test mix") as own_app, open_clock(own_app, app_db.cron_url) as own:
            for _ in range(60):
                job_id = rng.choice(ids)
                try:
                    match rng.choice([0, 1, 2, 2, 2, 3, 3, 3, 4]):
                        case 0:
                            add(own_app, own, job_id=job_id, enabled=rng.random() < 0.8)
                        case 1:
                            change_job(own_app, own, job_id, schedule=f"{rng.randrange(60)} 0 1 1 *")
                        case 2:
                            pause_job(own_app, own, job_id)
                        case 3:
                            resume_job(own_app, own, job_id)
                        case _:
                            delete_job(own_app, own, job_id)
                    done += 1
                except SumaclockError as error:
                    if not re.search("There is no job|exists already", str(error)):
                        raise
        return done

    with ThreadPoolExecutor(4) as pool:
        done = [result.result() for result in [pool.submit(change_at_random, seed) for seed in range(4)]]
    assert min(done) > 10
    assert placed(clock) == {job.id: job.schedule for job in list_jobs(app) if job.enabled}
