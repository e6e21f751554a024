"""Slots and reconciliation: each kind of drift is mended, and one sync moves all jobs from one way to the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sumaclock_dagster.calendar import zone_data_version
from sumaclock_dagster.clock.jobs import change_job, pause_job, resume_job
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.clock.slots import SLOT_PREFIX, slot_id
from sumaclock_dagster.clock.spent_slots import sweep_slots
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.reconcile import heartbeat, mender
from sumaclock_dagster.reconcile.drift import Drift, DriftKind, count_by_kind, find_drift
from sumaclock_dagster.reconcile.reasons import why_late
from sumaclock_dagster.reconcile.repair import look_for_damage
from sumaclock_dagster.reconcile.sync import BUSY, sync
from tests.conftest import AppDatabase
from tests.reconcile import (
    NEVER_SOON,
    clock_rows,
    cron_as_superuser,
    insert_jobs,
    insert_tasks,
    new_job,
    silent_since,
)
from tests.slots import fire_slot, fired, in_slots, join_earlier, noted_schedules, slot_name, slot_schedules
from tests.tasks import add_task, make_task_effects, settled, task_worker

OTHER = "1 1 1 1 *"


@pytest.fixture
def clock(app: Connection, app_db: AppDatabase) -> Iterator[Clock]:
    with open_clock(app, app_db.cron_url, "slots") as opened:
        yield opened


@pytest.fixture
def jobs_clock(app: Connection, app_db: AppDatabase) -> Iterator[Clock]:
    with open_clock(app, app_db.cron_url, "jobs") as opened:
        yield opened


@pytest.fixture
def cron(app_db: AppDatabase) -> Iterator[Connection]:
    with cron_as_superuser(app_db) as conn:
        yield conn


def kinds(drifts: list[Drift]) -> list[DriftKind]:
    return [drift.kind for drift in drifts]


BY_HAND: list[tuple[DriftKind, str]] = [
    (DriftKind.MISSING, "delete from cron.job where jobname = %(name)s"),
    (DriftKind.SCHEDULE, "update cron.job set schedule = '2 2 2 2 *' where jobname = %(name)s"),
    (DriftKind.COMMAND, "update cron.job set command = 'select 1' where jobname = %(name)s"),
    (DriftKind.DISABLED, "update cron.job set active = false where jobname = %(name)s"),
    (DriftKind.DATABASE, "update cron.job set database = 'gone_for_good' where jobname = %(name)s"),
    (DriftKind.PLACE, "update cron.job set nodename = 'old.primary', nodeport = 1 where jobname = %(name)s"),
]


@pytest.mark.parametrize(("kind", "by_hand"), BY_HAND, ids=[kind.value for kind, _ in BY_HAND])
def test_each_kind_of_drift_of_a_slot_is_found_and_mended(
    kind: DriftKind, by_hand: str, app: Connection, clock: Clock, cron: Connection
) -> None:
    new_job(app, clock)
    new_job(app, clock)
    new_job(app, clock, OTHER)
    before = clock_rows(cron, clock.database_name)
    assert find_drift(app, clock) == []

    cron.execute(by_hand, {"name": slot_name(clock, NEVER_SOON)})

    (drift,) = find_drift(app, clock)
    assert (drift.job_id, drift.slot, drift.kind, drift.left) == (None, slot_id(NEVER_SOON), kind, "")
    assert drift.subject == f"slot {slot_id(NEVER_SOON)}"
    assert drift.wanted != drift.found
    assert kinds(sync(app, clock, dry_run=True).left) == [kind]
    report = sync(app, clock)
    assert kinds(report.found) == kinds(report.mended) == [kind]
    assert report.left == find_drift(app, clock) == []
    assert clock_rows(cron, clock.database_name) == before


def test_a_slot_that_is_not_noted_is_missing_and_noted_again(app: Connection, clock: Clock) -> None:
    new_job(app, clock)
    app.execute("delete from sumaclock.clock_slots")
    (drift,) = find_drift(app, clock)
    assert (drift.kind, drift.found) == (DriftKind.MISSING, f"{NEVER_SOON} (not in clock_slots)")
    assert sync(app, clock).left == []
    assert noted_schedules(app) == [NEVER_SOON]


def test_a_slot_that_nobody_knows_of_is_an_orphan_and_removed(app: Connection, clock: Clock) -> None:
    new_job(app, clock)
    clock.place_slot(OTHER)
    app.execute("delete from sumaclock.clock_slots where schedule = %s", [OTHER])
    (drift,) = find_drift(app, clock)
    assert (drift.kind, drift.slot, drift.found) == (DriftKind.ORPHAN, slot_id(OTHER), OTHER)
    report = sync(app, clock)
    assert (report.left, report.removed, slot_schedules(clock)) == ([], 1, [NEVER_SOON])


def test_a_clock_job_of_its_own_is_an_orphan_beside_a_slot(
    app: Connection, clock: Clock, jobs_clock: Clock, cron: Connection
) -> None:
    job = new_job(app, clock)
    before = clock_rows(cron, clock.database_name)
    jobs_clock.schedule(job, NEVER_SOON)
    assert [(drift.kind, drift.job_id) for drift in find_drift(app, clock)] == [(DriftKind.ORPHAN, job)]
    assert sync(app, clock).left == []
    assert clock_rows(cron, clock.database_name) == before


def test_a_job_that_nothing_fires_is_missing_and_joins_its_slot(app: Connection, clock: Clock) -> None:
    new_job(app, clock)
    (lost,) = insert_jobs(app, 1)
    assert [(drift.kind, drift.job_id) for drift in find_drift(app, clock)] == [(DriftKind.MISSING, lost)]
    report = sync(app, clock)
    assert (report.left, report.placed, report.rows) == ([], 0, 1)
    assert lost in in_slots(app)


def test_a_job_that_joined_while_the_servers_clock_was_ahead_joins_again(app: Connection, clock: Clock) -> None:
    job = new_job(app, clock)
    app.execute("update sumaclock.cron_jobs set slot_since = now() + interval '1 day'")
    assert [(drift.kind, drift.job_id) for drift in find_drift(app, clock)] == [(DriftKind.MISSING, job)]
    assert sync(app, clock).left == []
    assert app.execute("select slot_since <= now() from sumaclock.cron_jobs").fetchone() == (True,)


def test_a_slot_that_runs_as_somebody_else_or_in_another_database_is_left(
    app: Connection, clock: Clock, cron: Connection
) -> None:
    new_job(app, clock)
    name = {"name": slot_name(clock, NEVER_SOON)}
    cron.execute("update cron.job set database = 'template1' where jobname = %(name)s", name)
    try:
        (left,) = sync(app, clock).left
        assert (left.kind, left.found) == (DriftKind.DATABASE, "template1")
        assert "Database 'template1' exists" in left.left
    finally:
        cron.execute("delete from cron.job where jobname = %(name)s", name)
    assert sync(app, clock).left == []
    cron.execute("update cron.job set username = 'sumaclock_owner' where jobname = %(name)s", name)
    assert kinds(find_drift(app, clock)) == [DriftKind.MISSING]
    assert sync(app, clock).left == []
    rows = cron.execute("select username::text from cron.job where jobname = %(name)s", name).fetchall()
    assert sorted(rows) == [("sumaclock_app",), ("sumaclock_owner",)]


def test_rule_10_neighbours_of_slots_are_neither_drift_nor_touched(
    app: Connection, clock: Clock, jobs_clock: Clock, cron: Connection
) -> None:
    new_job(app, clock)
    slot, name = slot_id(NEVER_SOON), clock.database_name
    marker = f"select 'neighbours of {name}'"
    snapshot = "select * from cron.job where command = %s order by jobid"
    rows = [
        (f"{name}:slot:{slot}", name, "sumaclock_owner"),
        (f"{name}x:slot:{slot}", "postgres", "sumaclock_app"),
        (f"x{name}:slot:{slot_id(OTHER)}", "postgres", "sumaclock_app"),
        (f"{name}:slot:{slot_id(OTHER)}", "postgres", "sumaclock_app"),
        (f"{name}:slot:x", name, "sumaclock_app"),
        (f"{name}:slots:{slot}", name, "sumaclock_app"),
    ]
    try:
        with cron.cursor() as cursor:
            cursor.executemany(
                "insert into cron.job (schedule, command, nodename, nodeport, database, username, jobname)"
                f" values ('{NEVER_SOON}', %s, 'localhost', 1, %s, %s, %s)",
                [(marker, database, role, label) for label, database, role in rows],
            )
        before = cron.execute(snapshot, [marker]).fetchall()
        assert find_drift(app, clock) == []
        assert sync(app, jobs_clock).left == []
        assert sync(app, clock).left == []
        app.execute("update sumaclock.cron_jobs set enabled = false")
        app.execute("update sumaclock.clock_slots set placed_at = placed_at - interval '2 hours'")
        assert sweep_slots(app, clock) == 1
        assert cron.execute(snapshot, [marker]).fetchall() == before
    finally:
        cron.execute("delete from cron.job where command = %s", [marker])


def test_rule_13_a_schedule_past_the_check_harms_itself_alone(app: Connection, clock: Clock) -> None:
    good = insert_jobs(app, 3)
    (foreign,) = insert_jobs(app, 1, "0 9 * * 1#1")
    report = sync(app, clock)
    assert in_slots(app) == set(good)
    assert slot_schedules(clock) == [NEVER_SOON]
    assert {(drift.job_id, drift.slot) for drift in report.left} == {(foreign, None), (None, slot_id("0 9 * * 1#1"))}
    assert all("means nothing to pg_cron" in drift.left for drift in report.left)


def test_a_slot_that_pg_cron_refuses_is_found_among_the_others(
    app: Connection, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minute in range(20):
        insert_jobs(app, 1, f"{minute} 1 1 1 *")
    insert_jobs(app, 1, "61 * * * *")
    monkeypatch.setattr(mender, "check", lambda schedule, features: None)
    report = sync(app, clock)
    assert len(slot_schedules(clock)) == len(in_slots(app)) == 20
    assert [drift.slot for drift in report.left if "invalid schedule" in drift.left] == [slot_id("61 * * * *")]


def test_what_was_changed_just_now_is_not_damage(app: Connection, superuser: Connection, clock: Clock) -> None:
    insert_tasks(superuser, 1, "now() + interval '30 days'", zone_data_version())
    assert sorted(kinds(find_drift(app, clock))) == [DriftKind.MISSING, DriftKind.MISSING]
    assert look_for_damage(app, clock).is_none


# ---- from one way to the other


def test_one_sync_moves_all_to_slots_and_one_back(
    app: Connection,
    superuser: Connection,
    clock: Clock,
    jobs_clock: Clock,
    cron: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mender, "BATCH", 50)
    insert_tasks(superuser, 120, "now() + interval '30 days'", zone_data_version())
    for minute in range(30):
        insert_jobs(app, 3, f"{minute} 1 1 1 *")
    (paused,) = insert_jobs(app, 1)
    app.execute("update sumaclock.cron_jobs set enabled = false where id = %s", [paused])
    assert sync(app, jobs_clock).left == []
    alone = clock_rows(cron, clock.database_name)
    assert len(alone) == 210

    to_slots = sync(app, clock)
    assert to_slots.left == find_drift(app, clock) == []
    assert (to_slots.placed, to_slots.removed, to_slots.rows) == (31, 210, 210)
    assert len(slot_schedules(clock)) == len(noted_schedules(app)) == 31
    assert clock.listed() == []
    assert len(in_slots(app)) == 210
    assert sync(app, clock).found == []

    back = sync(app, jobs_clock)
    assert back.left == find_drift(app, jobs_clock) == []
    assert (back.placed, back.removed, back.rows) == (210, 31, 210)
    assert clock_rows(cron, clock.database_name) == alone
    assert (in_slots(app), noted_schedules(app)) == (set(), [])


def test_who_changes_a_job_before_the_sync_leaves_it_in_its_way(
    app: Connection, clock: Clock, jobs_clock: Clock
) -> None:
    alone, paused = new_job(app, jobs_clock), new_job(app, jobs_clock)
    pause_job(app, jobs_clock, paused)
    change_job(app, clock, alone, schedule=OTHER)
    assert [job.schedule for job in clock.listed()] == [OTHER]
    resume_job(app, clock, paused)
    assert in_slots(app) == {paused}, "what fires again takes the new way"
    assert sync(app, clock).left == []
    assert (clock.listed(), in_slots(app)) == ([], {alone, paused})

    change_job(app, jobs_clock, alone, schedule=NEVER_SOON)
    assert (jobs_clock.listed(), in_slots(app)) == ([], {alone, paused})
    pause_job(app, jobs_clock, paused)
    resume_job(app, jobs_clock, paused)
    assert ([job.job_id for job in jobs_clock.listed()], in_slots(app)) == ([paused], {alone})
    assert sync(app, jobs_clock).left == []
    assert len(jobs_clock.listed()) == 2
    assert (in_slots(app), slot_schedules(clock)) == (set(), [])


def test_tasks_take_the_new_way_with_their_next_settling_and_a_sync_clears_up(
    app: Connection, superuser: Connection, clock: Clock, app_db: AppDatabase
) -> None:
    make_task_effects(superuser)
    with task_worker(app_db):
        task = add_task(app)
        settled(app, task)
        assert len(clock.listed()) == 1
    with task_worker(app_db, clock="slots"):
        app.execute("select sumaclock.update_task(%s, cron => '30 9 * * TUE')", [task])
        settled(app, task)
    assert len(slot_schedules(clock)) == 1
    assert kinds(find_drift(app, clock)) == [DriftKind.ORPHAN]
    assert sync(app, clock).left == []
    assert clock.listed() == []
    with task_worker(app_db, clock="slots"):
        app.execute("select sumaclock.pause_task(%s)", [task])
        settled(app, task)
    assert find_drift(app, clock) == []
    with task_worker(app_db):
        app.execute("select sumaclock.resume_task(%s)", [task])
        settled(app, task)
    assert (in_slots(app), len(clock.listed())) == (set(), 1)


def test_the_minute_of_a_move_is_no_firing_of_the_slot(app: Connection, clock: Clock, jobs_clock: Clock) -> None:
    there, moved = new_job(app, clock), new_job(app, jobs_clock)
    join_earlier(app)
    sync(app, clock)
    app.execute(
        "update sumaclock.cron_jobs set slot_since = slot_since + interval '1 minute' where id = %s", [moved]
    )  # as if no minute had begun since
    fire_slot(app, NEVER_SOON)
    assert fired(app) == {there: 1}
    sync(app, jobs_clock)
    join_earlier(app)
    clock.place_slot(NEVER_SOON)
    fire_slot(app, NEVER_SOON)
    assert fired(app) == {there: 1}, "what has left its slot is not fired by it"


def test_a_job_that_somebody_is_changing_is_not_waited_for(
    app: Connection, clock: Clock, jobs_clock: Clock, app_db: AppDatabase
) -> None:
    free, held = new_job(app, jobs_clock), new_job(app, jobs_clock)
    with connect(app_db.app_url, "test editor") as editor, open_clock(editor, app_db.cron_url) as their_clock:
        with editor.transaction():
            change_job(editor, their_clock, held, payload={"edited": True})
            report = sync(app, clock)
            assert in_slots(app) == {free}
            assert [(drift.job_id, drift.left) for drift in report.left] == [(held, BUSY)]
        assert sync(app, clock).left == []
        with editor.transaction():
            change_job(editor, their_clock, held, payload={"edited": False})
            report = sync(app, jobs_clock)
            assert in_slots(app) == {held}
            assert slot_schedules(clock) == [NEVER_SOON], "the slot stays until the last has left"
        assert sync(app, jobs_clock).left == []
    assert slot_schedules(clock) == []


def test_syncs_in_both_directions_at_once_while_people_edit_end_without_drift(
    app: Connection, clock: Clock, app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mender, "BATCH", 20)
    jobs = insert_jobs(app, 100) + insert_jobs(app, 100, OTHER)
    start = threading.Barrier(3)

    def move(mode: str) -> int:
        with (
            connect(app_db.app_url, "test sync") as own,
            open_clock(own, app_db.cron_url, "slots" if mode == "slots" else "jobs") as own_clock,
        ):
            start.wait(10)
            return len([sync(own, own_clock) for _ in range(3)])

    def edit() -> int:
        with connect(app_db.app_url, "test editor") as own, open_clock(own, app_db.cron_url, "slots") as own_clock:
            start.wait(10)
            for job_id in jobs[:30]:
                change_job(own, own_clock, job_id, schedule="5 5 5 5 *")
            for job_id in jobs[100:120]:
                pause_job(own, own_clock, job_id)
            return 3

    with ThreadPoolExecutor(3) as pool:
        results = [pool.submit(move, "slots"), pool.submit(move, "jobs"), pool.submit(edit)]
        assert [done.result(120) for done in results] == [3, 3, 3]
    assert sync(app, clock).left == []
    assert find_drift(app, clock) == []
    assert in_slots(app) >= {*jobs[:100], *jobs[120:]}
    assert clock.listed() == []
    assert set(slot_schedules(clock)) >= {"5 5 5 5 *", NEVER_SOON, OTHER}


def test_a_sync_that_is_cut_off_between_the_two_ways_is_finished_by_the_next(
    app: Connection, clock: Clock, jobs_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mender, "BATCH", 20)
    for mover, other in ((clock, jobs_clock), (jobs_clock, clock)):
        if mover is clock:
            insert_jobs(app, 60)
            sync(app, other)
        said: list[str] = []

        def cut_off(text: str, said: list[str] = said) -> None:
            said.append(text)
            if text.startswith("40 of"):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sync(app, mover, say=cut_off)
        assert len(in_slots(app)) == (40 if mover is clock else 20)
        assert len(clock.listed()) == (20 if mover is clock else 40)
        assert slot_schedules(clock) == [NEVER_SOON]
        assert sync(app, mover).left == []
        assert find_drift(app, mover) == []
    assert (in_slots(app), len(jobs_clock.listed()), slot_schedules(clock)) == (set(), 60, [])


def test_count_of_drift_of_a_mode_that_changed(app: Connection, clock: Clock, jobs_clock: Clock) -> None:
    for _ in range(3):
        new_job(app, jobs_clock)
    assert count_by_kind(find_drift(app, clock)) == {"missing": 1, "orphan": 3}
    sync(app, clock)
    assert count_by_kind(find_drift(app, jobs_clock)) == {"missing": 3, "orphan": 1}


def test_the_heartbeat_says_why_a_task_in_a_slot_is_late(
    app: Connection, superuser: Connection, clock: Clock, cron: Connection
) -> None:
    insert_tasks(superuser, 1, "now() - interval '10 minutes'", zone_data_version())
    sync(app, clock)
    assert len(clock.listed(SLOT_PREFIX)) == 1
    late = heartbeat.beat(app, 30).tasks
    assert len(late) == 1
    assert [*why_late(app, clock, late).values()] == [silent_since(app, late[0].scheduled_at)]
    cron.execute("delete from cron.job where database = %s", [clock.database_name])
    assert [*why_late(app, clock, late).values()] == ["It has no clock job."]
