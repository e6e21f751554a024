"""Slots on real pg_cron: jobs that share one are placed, changed and taken away, and what its firing writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from sumaclock_dagster.clock.bulk import clear
from sumaclock_dagster.clock.command import slot_firing_command
from sumaclock_dagster.clock.jobs import change_job, create_job, delete_job, pause_job, resume_job
from sumaclock_dagster.clock.pg_cron import Clock, clock_job_name, open_clock
from sumaclock_dagster.clock.slots import SLOT_PREFIX, slot_id
from sumaclock_dagster.clock.spent_slots import slot_handlers, sweep_slots
from sumaclock_dagster.db import Connection, connect, query
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.reconcile.drift import find_drift
from tests.conftest import AppDatabase
from tests.reconcile import NEVER_SOON, clock_rows, cron_as_superuser, new_job
from tests.slots import fire_slot, fired, in_slots, join_earlier, noted_schedules, slot_name, slot_schedules
from tests.tasks import add_task, make_task_effects, task_worker
from tests.waiting import until

OTHER = "1 1 1 1 *"


@pytest.fixture
def clock(app: Connection, app_db: AppDatabase) -> Iterator[Clock]:
    with open_clock(app, app_db.cron_url, "slots") as opened:
        yield opened


@pytest.fixture
def cron(app_db: AppDatabase) -> Iterator[Connection]:
    with cron_as_superuser(app_db) as conn:
        yield conn


# ---- placing


def test_jobs_of_one_schedule_share_one_clock_job(app: Connection, clock: Clock, cron: Connection) -> None:
    jobs = {new_job(app, clock) for _ in range(5)}
    other = new_job(app, clock, OTHER)
    assert clock.listed() == []
    rows = clock_rows(cron, clock.database_name)
    assert sorted(rows) == sorted(
        (slot_name(clock, schedule), schedule, slot_firing_command(slot_id(schedule)), True)
        for schedule in (NEVER_SOON, OTHER)
    )
    assert noted_schedules(app) == sorted([NEVER_SOON, OTHER])
    assert in_slots(app) == {*jobs, other}
    assert find_drift(app, clock) == []


def test_a_firing_writes_one_run_for_each_job_of_the_slot(app: Connection, clock: Clock) -> None:
    jobs = [new_job(app, clock) for _ in range(3)]
    new_job(app, clock, OTHER)
    join_earlier(app)
    app.execute("listen cron_runs")
    fire_slot(app, NEVER_SOON)
    assert fired(app) == dict.fromkeys(jobs, 1)
    assert [notice.channel for notice in app.notifies(timeout=5, stop_after=1)] == ["cron_runs"]
    row = app.execute(
        "select distinct scheduled_at = date_trunc('minute', due_at), status::text from sumaclock.cron_runs"
    )
    assert row.fetchall() == [(True, "pending")]


def test_paused_changed_and_deleted_jobs_do_not_fire(app: Connection, clock: Clock) -> None:
    stays, paused, changed, deleted, created_paused = (
        *(new_job(app, clock) for _ in range(4)),
        new_job(app, clock, enabled=False),
    )
    pause_job(app, clock, paused)
    change_job(app, clock, changed, schedule=OTHER)
    delete_job(app, clock, deleted)
    join_earlier(app)
    fire_slot(app, NEVER_SOON)
    assert fired(app) == {stays: 1}
    fire_slot(app, OTHER)
    assert fired(app) == {stays: 1, changed: 1}
    resume_job(app, clock, paused)
    resume_job(app, clock, created_paused)
    join_earlier(app)
    fire_slot(app, NEVER_SOON)
    assert fired(app) == {stays: 2, changed: 1, paused: 1, created_paused: 1}
    assert find_drift(app, clock) == []


def test_what_joins_a_slot_in_its_own_minute_fires_in_the_next(app: Connection, clock: Clock) -> None:
    there = new_job(app, clock)
    join_earlier(app)
    new, moved = new_job(app, clock), new_job(app, clock, OTHER)
    change_job(app, clock, moved, schedule=NEVER_SOON)
    app.execute("update sumaclock.cron_jobs set slot_since = slot_since + interval '1 minute' where id <> %s", [there])
    fire_slot(app, NEVER_SOON)
    assert fired(app) == {there: 1}
    # The last instant before a firing's minute, whichever minute that is.
    app.execute("update sumaclock.cron_jobs set slot_since = date_trunc('minute', now()) - interval '1 us'")
    fire_slot(app, NEVER_SOON)
    assert fired(app) == {there: 2, new: 1, moved: 1}


def test_a_change_that_moves_no_firing_keeps_the_job_in_its_slot_all_along(app: Connection, clock: Clock) -> None:
    job = new_job(app, clock)
    since = "select slot_since from sumaclock.cron_jobs where id = %s"
    before = app.execute(since, [job]).fetchone()
    change_job(app, clock, job, payload={"new": True})
    change_job(app, clock, job, schedule=NEVER_SOON)
    change_job(app, clock, job, overlap="skip")
    resume_job(app, clock, job)
    assert app.execute(since, [job]).fetchone() == before
    change_job(app, clock, job, schedule=OTHER)
    assert app.execute(since, [job]).fetchone() > before


def test_a_job_that_skips_writes_no_run_while_one_is_open(app: Connection, clock: Clock) -> None:
    skips, allows = new_job(app, clock), new_job(app, clock)
    change_job(app, clock, skips, overlap="skip")
    join_earlier(app)
    fire_slot(app, NEVER_SOON)
    fire_slot(app, NEVER_SOON)
    assert fired(app) == {skips: 1, allows: 2}
    app.execute(
        "update sumaclock.cron_runs set status = 'skipped', error = 'by hand', claimed_by = 0, finished_at = now()"
    )
    fire_slot(app, NEVER_SOON)
    assert fired(app) == {skips: 2, allows: 3}


def test_two_firings_of_a_slot_at_once_write_one_run_of_a_job_that_skips(
    app: Connection, clock: Clock, app_db: AppDatabase
) -> None:
    skips = new_job(app, clock)
    change_job(app, clock, skips, overlap="skip")
    join_earlier(app)
    start = threading.Barrier(4)

    def fire() -> None:
        with connect(app_db.app_url, "test firing") as conn:
            start.wait(10)
            fire_slot(conn, NEVER_SOON)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(fire) for _ in range(4)]:
            done.result(30)
    assert fired(app) == {skips: 1}


def test_a_slot_in_seconds_notes_the_second_and_skips_by_itself(app: Connection) -> None:
    skips, allows = (
        app.execute(
            "insert into sumaclock.cron_jobs (kind, organization_id, user_id, schedule, overlap, slot_since)"
            " values ('k', 'o', 'u', '10 seconds', %s, now() - interval '1 second') returning id",
            [overlap],
        ).fetchall()[0][0]
        for overlap in ("auto", "allow")
    )
    app.execute("insert into sumaclock.clock_slots (id, schedule) values (%s, '10 seconds')", [slot_id("10 seconds")])
    fire_slot(app, "10 seconds")
    fire_slot(app, "10 seconds")
    assert fired(app) == {skips: 1, allows: 2}
    assert app.execute("select bool_and(scheduled_at = due_at) from sumaclock.cron_runs").fetchone() == (True,)


def test_rule_13_a_job_that_is_being_deleted_does_not_keep_the_others_from_firing(
    app: Connection, clock: Clock, app_db: AppDatabase
) -> None:
    doomed, fine = new_job(app, clock), new_job(app, clock)
    join_earlier(app)
    with connect(app_db.app_url, "test deleting") as deleting, deleting.transaction():
        delete_job(deleting, clock, doomed)
        fire_slot(app, NEVER_SOON)
    assert fired(app) == {fine: 1}


def test_a_job_that_is_being_edited_or_claimed_fires(app: Connection, clock: Clock, app_db: AppDatabase) -> None:
    job = new_job(app, clock)
    join_earlier(app)
    with connect(app_db.app_url, "test editing") as editing, editing.transaction():
        editing.execute("update sumaclock.cron_jobs set payload = '1' where id = %s", [job])
        fire_slot(app, NEVER_SOON)
    assert fired(app) == {job: 1}


def test_a_slot_that_is_not_noted_fires_nothing(app: Connection, clock: Clock) -> None:
    new_job(app, clock)
    join_earlier(app)
    app.execute("delete from sumaclock.clock_slots")
    fire_slot(app, NEVER_SOON)
    fire_slot(app, OTHER)
    assert fired(app) == {}


# ---- rule 1, and names


HOSTILE: list[Any] = [
    "x'; drop table sumaclock.cron_jobs; --",
    "5b0f5f0e-8f43-4f0c-9d6e-6a9fb2a3c111",
    None,
    b"1",
    1,
    NEVER_SOON,
]


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_rule_1_a_slot_fires_by_a_uuid_and_nothing_else(value: Any) -> None:
    with pytest.raises(TypeError, match="UUID and nothing else"):
        slot_firing_command(value)


def test_rule_1_the_commands_of_two_slots_differ_in_the_uuid_alone(app: Connection, clock: Clock) -> None:
    one, two = uuid4(), uuid4()
    text = slot_firing_command(one)
    assert text.replace(str(one), str(two)) == slot_firing_command(two)
    assert text.count(str(one)) == 2
    assert "\n" not in text


@pytest.mark.parametrize("schedule", ["1'; drop table x; -- * *", "* * * *", "FRI-MON * * * *", "0 9 * * 1#1", "\0"])
def test_no_slot_is_made_for_a_schedule_that_the_grammar_refuses(schedule: str, app: Connection, clock: Clock) -> None:
    with pytest.raises(SumaclockError):
        new_job(app, clock, schedule)
    assert (slot_schedules(clock), noted_schedules(app)) == ([], [])


def test_names_of_slots_fit_what_pg_cron_keeps(cron: Connection) -> None:
    longest = clock_job_name("d" * 21, slot_id(NEVER_SOON), SLOT_PREFIX)
    assert len(longest.encode()) == 63
    assert cron.execute("select %s::text::name::text", [longest]).fetchone() == (longest,)
    with pytest.raises(SumaclockError, match="22 bytes"):
        clock_job_name("d" * 22, slot_id(NEVER_SOON), SLOT_PREFIX)


def test_a_slots_id_is_told_by_its_schedule_and_never_changes() -> None:
    assert slot_id("0 9 * * 1") == UUID("a3b59e07-8c73-5130-bd81-ca15c94ca17e")
    assert slot_id("0 9 * * 1") != slot_id("00 9 * * 1")


# ---- what is sent to pg_cron


def test_a_thousand_tasks_on_one_minute_send_one_change_to_pg_cron(
    app: Connection, superuser: Connection, app_db: AppDatabase, cron: Connection
) -> None:
    make_task_effects(superuser)
    minute = "date_trunc('minute', now()) + interval '30 days'"
    sent: list[str] = []
    original = Clock.call

    def counting(self: Clock, work: Any) -> Any:
        def counted(conn: Connection) -> Any:
            sent.append(conn.info.dbname)
            return work(conn)

        return original(self, counted)

    with pytest.MonkeyPatch.context() as patch, task_worker(app_db, clock="slots"):
        patch.setattr(Clock, "call", counting)
        app.execute(
            "select sumaclock.create_task(organization_id => 'o', user_id => 'u', kind => 'effect',"
            f" instant => {minute}) from generate_series(1, 1000)"
        )
        placed = (
            "select count(*) from sumaclock.ai_tasks t join sumaclock.cron_jobs j on j.id = t.cron_job_id"
            " where t.next_run_at is not null and j.enabled and j.slot_since is not null"
        )
        until(lambda: app.execute(placed).fetchone() == (1000,), 60, "all to be placed")
    assert sent == ["postgres"]
    assert len(clock_rows(cron, app_db.name)) == 1
    with open_clock(app, app_db.cron_url, "slots") as clock:
        assert find_drift(app, clock) == []


def test_a_second_clock_knows_of_the_slot_and_sends_nothing(app: Connection, clock: Clock, app_db: AppDatabase) -> None:
    new_job(app, clock)
    with open_clock(app, "postgresql://sumaclock_app@127.0.0.1:1/postgres", "slots") as cut_off:
        job = create_job(
            app,
            ClockWithFeatures(cut_off, clock),
            kind="k",
            organization_id="o",
            user_id="u",
            payload={},
            schedule=NEVER_SOON,
        )
    assert job.id in in_slots(app)


class ClockWithFeatures(Clock):
    """One that knows what pg_cron understands, and can't reach it."""

    def __init__(self, cut_off: Clock, other: Clock) -> None:
        super().__init__(cut_off._cron_url, cut_off.database_name, "slots")
        self._features = other.features()


# ---- spent slots


def age_slots(app: Connection) -> None:
    app.execute("update sumaclock.clock_slots set placed_at = placed_at - interval '2 hours'")


def test_a_spent_slot_is_no_drift_and_is_swept(app: Connection, clock: Clock) -> None:
    job = new_job(app, clock)
    change_job(app, clock, job, schedule=OTHER)
    assert slot_schedules(clock) == sorted([NEVER_SOON, OTHER])
    assert find_drift(app, clock) == []
    assert sweep_slots(app, clock) == 0, "a young one may be wanted again"
    age_slots(app)
    assert sweep_slots(app, clock) == 1
    assert slot_schedules(clock) == noted_schedules(app) == [OTHER]
    pause_job(app, clock, job)
    age_slots(app)
    assert sweep_slots(app, clock) == 1
    assert slot_schedules(clock) == noted_schedules(app) == []
    resume_job(app, clock, job)
    assert slot_schedules(clock) == [OTHER]
    assert find_drift(app, clock) == []


def test_workers_sweep(app: Connection, clock: Clock, app_db: AppDatabase) -> None:
    pause_job(app, clock, new_job(app, clock))
    age_slots(app)
    job = slot_handlers(app_db.settings).system_jobs["sweep_slots"]
    assert job.function(None) == {"removed": 1}  # type: ignore[arg-type]
    assert slot_schedules(clock) == []


def test_a_slot_that_a_transaction_places_a_job_on_is_not_taken_away(
    app: Connection, clock: Clock, app_db: AppDatabase
) -> None:
    pause_job(app, clock, new_job(app, clock))
    age_slots(app)
    with connect(app_db.app_url, "test placing") as placing:
        with placing.transaction():
            job = new_job(placing, clock)
            assert sweep_slots(app, clock) == 0
        assert slot_schedules(clock) == [NEVER_SOON]
        with placing.transaction(force_rollback=True):
            delete_job(placing, clock, job)
            assert sweep_slots(app, clock) == 0
        delete_job(placing, clock, job)
    assert sweep_slots(app, clock) == 1


def test_a_slot_of_a_transaction_that_was_rolled_back_fires_nothing_and_is_swept(app: Connection, clock: Clock) -> None:
    with app.transaction(force_rollback=True):
        new_job(app, clock)
    assert slot_schedules(clock) == noted_schedules(app) == [NEVER_SOON]
    age_slots(app)
    assert sweep_slots(app, clock) == 1


def test_two_transactions_that_need_each_others_new_slots_do_not_wait(
    app: Connection, clock: Clock, app_db: AppDatabase
) -> None:
    with (
        connect(app_db.app_url, "test one") as one,
        connect(app_db.app_url, "test two") as two,
        open_clock(two, app_db.cron_url, "slots") as second,
    ):
        two.execute("set lock_timeout = '2s'")
        with one.transaction(), two.transaction():
            new_job(one, clock, NEVER_SOON)
            new_job(two, second, OTHER)
            new_job(two, second, NEVER_SOON)
            new_job(one, clock, OTHER)
    assert len(in_slots(app)) == 4
    assert find_drift(app, clock) == []


def test_clear_takes_slots_and_their_notes_away(app: Connection, clock: Clock, cron: Connection) -> None:
    for schedule in (NEVER_SOON, OTHER):
        new_job(app, clock, schedule)
    assert clear(clock) == 2
    assert clock_rows(cron, clock.database_name) == []
    assert noted_schedules(app) == []


def test_pg_cron_away_is_an_error_and_nothing_is_noted(app: Connection, app_db: AppDatabase, clock: Clock) -> None:
    away = ClockWithFeatures(Clock("postgresql://sumaclock_app@127.0.0.1:1/postgres", app_db.name), clock)
    with pytest.raises(SumaclockError, match="Cannot connect"):
        new_job(app, away)
    assert (noted_schedules(app), in_slots(app)) == ([], set())
    assert app.execute(query("read_standing"), {"job_id": uuid4()}).fetchone() is None


def test_a_broken_connection_for_notes_is_opened_again(app: Connection, clock: Clock, superuser: Connection) -> None:
    new_job(app, clock)
    superuser.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'sumaclock slots' and datname = current_database()"
    )
    new_job(app, clock, OTHER)
    assert noted_schedules(app) == sorted([NEVER_SOON, OTHER])


def test_the_app_role_may_keep_notes_and_nobody_writes_nonsense(app: Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        app.execute("insert into sumaclock.clock_slots (id, schedule) values (gen_random_uuid(), '')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        app.execute(
            "insert into sumaclock.clock_slots (id, schedule) values (gen_random_uuid(), 'x'), (gen_random_uuid(), 'x')"
        )
    add_task(app)
    assert in_slots(app) == set()
