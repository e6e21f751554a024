"""Drift: each kind made by hand in real pg_cron, told apart, and mended by a sync that touches nobody else's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import psycopg
import pytest

from sumaclock_dagster.calendar import zone_data_version
from sumaclock_dagster.clock import bulk
from sumaclock_dagster.clock.jobs import change_job, delete_job, pause_job
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection, connect, with_database
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.reconcile import mender
from sumaclock_dagster.reconcile.drift import Drift, DriftKind, find_drift
from sumaclock_dagster.reconcile.repair import look_for_damage, repair
from sumaclock_dagster.reconcile.sync import BUSY, sync
from tests.conftest import AppDatabase
from tests.reconcile import NEVER_SOON, clock_rows, cron_as_superuser, insert_jobs, insert_tasks, new_job
from tests.tasks import add_task, clock_schedule, make_task_effects, settled, task_worker
from tests.test_clock_pg_cron import neighbours


@pytest.fixture
def cron(app_db: AppDatabase) -> Iterator[Connection]:
    with cron_as_superuser(app_db) as conn:
        yield conn


@pytest.fixture
def clock(app: Connection, app_db: AppDatabase) -> Iterator[Clock]:
    with open_clock(app, app_db.cron_url) as opened:
        yield opened


def name(clock: Clock, job_id: UUID) -> str:
    return f"{clock.database_name}:cron:{job_id}"


def kinds(drifts: list[Drift]) -> list[DriftKind]:
    return [drift.kind for drift in drifts]


BY_HAND: list[tuple[DriftKind, str]] = [
    (DriftKind.MISSING, "delete from cron.job where jobname = %(name)s"),
    (DriftKind.SCHEDULE, "update cron.job set schedule = '1 1 1 1 *' where jobname = %(name)s"),
    (DriftKind.COMMAND, "update cron.job set command = 'select 1' where jobname = %(name)s"),
    (DriftKind.DISABLED, "update cron.job set active = false where jobname = %(name)s"),
    (DriftKind.DATABASE, "update cron.job set database = 'gone_for_good' where jobname = %(name)s"),
    (DriftKind.PLACE, "update cron.job set nodename = 'old.primary', nodeport = 1 where jobname = %(name)s"),
]


@pytest.mark.parametrize(("kind", "by_hand"), BY_HAND, ids=[kind.value for kind, _ in BY_HAND])
def test_each_kind_of_drift_is_found_and_mended(
    kind: DriftKind, by_hand: str, app: Connection, clock: Clock, cron: Connection
) -> None:
    job_id, other = new_job(app, clock), new_job(app, clock)
    before = clock_rows(cron, clock.database_name)
    assert find_drift(app, clock) == []

    cron.execute(by_hand, {"name": name(clock, job_id)})

    (drift,) = find_drift(app, clock)
    assert (drift.job_id, drift.kind, drift.left) == (job_id, kind, "")
    assert drift.wanted != drift.found
    report = sync(app, clock)
    assert kinds(report.found) == kinds(report.mended) == [kind]
    assert report.left == find_drift(app, clock) == []
    assert clock_rows(cron, clock.database_name) == before
    assert [job.job_id for job in clock.listed()].count(other) == 1
    assert sync(app, clock).found == []


def test_an_orphan_is_removed(app: Connection, clock: Clock, cron: Connection) -> None:
    job_id = new_job(app, clock)
    app.execute("delete from sumaclock.cron_jobs where id = %s", [job_id])
    (drift,) = find_drift(app, clock)
    assert (drift.kind, drift.wanted, drift.found) == (DriftKind.ORPHAN, "no clock job", NEVER_SOON)
    assert sync(app, clock, dry_run=True).left == [drift]
    assert len(clock.listed()) == 1, "a dry run changes nothing"
    assert sync(app, clock).left == []
    assert clock_rows(cron, clock.database_name) == []


def test_a_paused_job_must_not_fire(app: Connection, clock: Clock) -> None:
    job_id = new_job(app, clock)
    app.execute("update sumaclock.cron_jobs set enabled = false where id = %s", [job_id])
    assert kinds(find_drift(app, clock)) == [DriftKind.DISABLED]
    assert sync(app, clock).left == []
    assert clock.listed() == []


def test_several_differences_of_one_job_are_several_and_mended_at_once(
    app: Connection, clock: Clock, cron: Connection
) -> None:
    new_job(app, clock)
    cron.execute(
        "update cron.job set schedule = '1 1 1 1 *', command = 'select 1', active = false, nodename = 'elsewhere'"
        " where database = %s",
        [clock.database_name],
    )
    assert kinds(find_drift(app, clock)) == [
        DriftKind.SCHEDULE,
        DriftKind.COMMAND,
        DriftKind.DISABLED,
        DriftKind.PLACE,
    ]
    report = sync(app, clock)
    assert (report.placed, report.removed, report.left) == (1, 1, [])


def test_a_wrong_user_is_told_where_one_may_see_it_and_never_touched(
    app: Connection, clock: Clock, cron: Connection, app_db: AppDatabase
) -> None:
    job_id = new_job(app, clock)
    theirs = "update cron.job set username = 'sumaclock_owner' where jobname = %(name)s"
    cron.execute(theirs, {"name": name(clock, job_id)})
    # Row-level security shows the app role its own rows only.
    assert kinds(find_drift(app, clock)) == [DriftKind.MISSING]
    with Clock(with_database(app_db.superuser_url, "postgres"), app_db.name) as seeing:
        found = find_drift(app, seeing)
        assert kinds(found) == [DriftKind.MISSING, DriftKind.USER]
        assert "Only role 'sumaclock_owner' or a superuser" in found[1].left
        with pytest.raises(SumaclockError, match="let both be the app role"):
            sync(app, seeing)
    assert sync(app, clock).left == []
    rows = cron.execute("select username from cron.job where jobname = %s", [name(clock, job_id)]).fetchall()
    assert sorted(row[0] for row in rows) == ["sumaclock_app", "sumaclock_owner"]


def test_a_clock_job_of_a_database_that_exists_is_left_alone(app: Connection, clock: Clock, cron: Connection) -> None:
    job_id = new_job(app, clock)
    cron.execute("update cron.job set database = 'template1' where jobname = %(name)s", {"name": name(clock, job_id)})
    try:
        report = sync(app, clock)
        (left,) = report.left
        assert (left.kind, left.found, report.placed, report.removed) == (DriftKind.DATABASE, "template1", 0, 0)
        assert "Database 'template1' exists" in left.left
    finally:
        cron.execute("delete from cron.job where jobname = %(name)s", {"name": name(clock, job_id)})


def test_rule_10_neighbours_are_neither_drift_nor_touched(
    app: Connection, clock: Clock, cron: Connection, app_db: AppDatabase
) -> None:
    jobs = [uuid4(), uuid4()]
    marker = f"select 'neighbours of {app_db.name}'"
    snapshot = "select * from cron.job where command = %s order by jobid"
    try:
        with cron.cursor() as cursor:
            cursor.executemany(
                "insert into cron.job (schedule, command, nodename, nodeport, database, username, jobname)"
                " values (%s, %s, 'localhost', 1, %s, %s, %s)",
                [
                    (NEVER_SOON, marker, database, role, label)
                    for label, database, role in neighbours(app_db.name, jobs)
                ],
            )
        before = cron.execute(snapshot, [marker]).fetchall()
        assert find_drift(app, clock) == []
        insert_jobs(app, 3)
        assert kinds(sync(app, clock).mended) == [DriftKind.MISSING] * 3
        bulk.clear(clock)
        assert clock.listed() == []
        assert cron.execute(snapshot, [marker]).fetchall() == before
    finally:
        cron.execute("delete from cron.job where command = %s", [marker])


def test_rule_13_a_schedule_that_was_written_past_the_check_harms_itself_alone(app: Connection, clock: Clock) -> None:
    good = insert_jobs(app, 3)
    (foreign,) = insert_jobs(app, 1, "0 9 * * 1#1")
    report = sync(app, clock)
    assert {job.job_id for job in clock.listed()} == set(good)
    (left,) = report.left
    assert (left.job_id, left.kind) == (foreign, DriftKind.MISSING)
    assert "means nothing to pg_cron" in left.left


def test_what_pg_cron_itself_refuses_is_found_within_its_batch(
    app: Connection, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = insert_jobs(app, 20)
    (bad,) = insert_jobs(app, 1, "61 * * * *")
    monkeypatch.setattr(mender, "check", lambda schedule, features: None)
    report = sync(app, clock)
    assert {job.job_id for job in clock.listed()} == set(good)
    assert [(drift.job_id, "invalid schedule" in drift.left) for drift in report.left] == [(bad, True)]


def test_a_job_that_somebody_is_changing_is_not_waited_for(
    app: Connection, clock: Clock, app_db: AppDatabase, cron: Connection
) -> None:
    free, held = new_job(app, clock), new_job(app, clock)
    cron.execute("delete from cron.job where database = %s", [app_db.name])
    with connect(app_db.app_url, "test editor") as editor, open_clock(editor, app_db.cron_url) as their_clock:
        with editor.transaction():
            change_job(editor, their_clock, held, payload={"edited": True})
            report = sync(app, clock)
            assert [job.job_id for job in clock.listed()] == [free]
            assert [(drift.job_id, drift.left) for drift in report.left] == [(held, BUSY)]
        assert sync(app, clock).left == []


def test_two_syncs_at_once_while_people_edit_end_without_drift(
    app: Connection, clock: Clock, app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mender, "BATCH", 50)
    jobs = insert_jobs(app, 1200)
    for _ in range(50):
        clock.schedule(uuid4(), NEVER_SOON)
    start = threading.Barrier(3)

    def run_sync() -> int:
        with connect(app_db.app_url, "test sync") as own, open_clock(own, app_db.cron_url) as own_clock:
            start.wait(10)
            return len(sync(own, own_clock).found)

    def edit() -> int:
        with connect(app_db.app_url, "test editor") as own, open_clock(own, app_db.cron_url) as own_clock:
            start.wait(10)
            for job_id in jobs[:40]:
                change_job(own, own_clock, job_id, schedule="5 5 5 5 *")
            for job_id in jobs[40:60]:
                pause_job(own, own_clock, job_id)
            for job_id in jobs[60:80]:
                delete_job(own, own_clock, job_id)
            return 80

    with ThreadPoolExecutor(3) as pool:
        results = [pool.submit(work) for work in (run_sync, run_sync, edit)]
        assert [done.result(60) > 0 for done in results] == [True] * 3
    sync(app, clock)
    assert find_drift(app, clock) == []
    listed = {job.job_id: job.schedule for job in clock.listed()}
    assert set(listed) == set(jobs[:40] + jobs[80:])
    assert {listed[job_id] for job_id in jobs[:40]} == {"5 5 5 5 *"}


def test_a_sync_that_is_cut_off_half_way_is_finished_by_the_next(
    app: Connection, clock: Clock, app_db: AppDatabase, cron: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mender, "BATCH", 100)
    insert_jobs(app, 300)
    said: list[str] = []

    def cut_off(text: str) -> None:
        said.append(text)
        if len(said) == 3:
            cron.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'test app'"
                " and datname = %s",
                [app_db.name],
            )

    with pytest.raises(psycopg.OperationalError):
        sync(app, clock, say=cut_off)
    assert len(clock.listed()) == 200
    assert "200 of 300 jobs" in said[2]
    with connect(app_db.app_url, "test app") as again:
        assert sync(again, clock).left == []
    assert len(clock.listed()) == 300


def test_a_clock_that_goes_away_in_the_middle_is_an_error_and_the_next_sync_ends_the_work(
    app: Connection, app_db: AppDatabase, cron: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mender, "BATCH", 100)
    insert_jobs(app, 300)
    with open_clock(app, app_db.cron_url) as clock:

        def cut_off(text: str) -> None:
            if text.startswith("100 of"):
                clock.close()
                monkeypatch.setattr(clock, "_cron_url", "postgresql://sumaclock_app@127.0.0.1:1/postgres")

        with pytest.raises(SumaclockError, match="Cannot connect"):
            sync(app, clock, say=cut_off)
    with open_clock(app, app_db.cron_url) as again:
        assert len(again.listed()) == 100
        assert repair(app, again).sync.left == []
        assert len(again.listed()) == 300


def test_a_broken_connection_to_pg_cron_is_opened_again(app: Connection, clock: Clock, cron: Connection) -> None:
    insert_jobs(app, 3)
    find_drift(app, clock)
    cron.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'sumaclock clock'")
    assert len(sync(app, clock).mended) == 3


def test_no_transaction_changes_cron_job_more_than_a_thousand_times(
    app: Connection, clock: Clock, cron: Connection
) -> None:
    insert_jobs(app, 1300)
    sync(app, clock)
    sizes = "select count(*) from cron.job where database = %s group by xmin::text"
    made = [row[0] for row in cron.execute(sizes, [clock.database_name]).fetchall()]
    assert sum(made) == 1300
    assert max(made) <= 1000
    assert len(made) == 3, "a transaction of pg_cron for five hundred jobs, however many connections place them"
    with pytest.raises(ValueError, match="1001 changes"):
        bulk.change_many(clock, [], lambda _: bulk.Changes(removed=list(range(1001))))


def test_a_sync_without_a_second_connection_to_pg_cron_uses_its_first(
    app: Connection, clock: Clock, cron: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Clock("postgresql://sumaclock_app@127.0.0.1:1/postgres", clock.database_name)
    monkeypatch.setattr(clock, "another", lambda: away)
    insert_jobs(app, 600)
    assert sync(app, clock).left == []
    assert len(clock.listed()) == 600


# ---- tasks


TASK_DAMAGE: list[tuple[str, Callable[[Connection, Connection, str], object], list[DriftKind]]] = [
    (
        "the clock job points at another minute",
        lambda app, cron, db: cron.execute("update cron.job set schedule = '1 1 1 1 *' where database = %s", [db]),
        [DriftKind.SCHEDULE],
    ),
    (
        "the row says another minute",
        lambda app, cron, db: app.execute("update sumaclock.cron_jobs set schedule = '1 1 1 1 *'"),
        [DriftKind.SCHEDULE],
    ),
    (
        "the row is disabled",
        lambda app, cron, db: app.execute("update sumaclock.cron_jobs set enabled = false"),
        [DriftKind.DISABLED],
    ),
    (
        "paused past the functions",
        lambda app, cron, db: app.execute(
            "update sumaclock.ai_tasks set status = 'paused', next_run_at = null, status_reason = 'by hand'"
        ),
        [DriftKind.DISABLED, DriftKind.DISABLED],
    ),
]


@pytest.mark.parametrize(("damage", "expected"), [case[1:] for case in TASK_DAMAGE], ids=[c[0] for c in TASK_DAMAGE])
def test_a_task_is_scheduled_as_its_next_occurrence_says(
    damage: Callable[[Connection, Connection, str], object],
    expected: list[DriftKind],
    app: Connection,
    superuser: Connection,
    clock: Clock,
    cron: Connection,
    app_db: AppDatabase,
) -> None:
    insert_tasks(superuser, 1, "now() + interval '30 days'", zone_data_version())
    assert sync(app, clock).left == []
    before = clock_rows(cron, app_db.name)

    damage(app, cron, app_db.name)

    app.execute("update sumaclock.cron_jobs set updated_at = now() - interval '2 minutes'")
    app.execute("update sumaclock.ai_tasks set updated_at = now() - interval '2 minutes'")
    assert kinds(look_for_damage(app, clock).drift) == expected
    repair(app, clock)
    assert find_drift(app, clock) == []
    active = app.execute("select status = 'active' from sumaclock.ai_tasks").fetchone() == (True,)
    assert clock_rows(cron, app_db.name) == (before if active else [])
    assert app.execute("select enabled from sumaclock.cron_jobs").fetchone() == (active,)


def test_a_tasks_row_in_cron_jobs_cannot_go_before_the_task(app: Connection, superuser: Connection) -> None:
    insert_tasks(superuser, 1, "now() + interval '30 days'", zone_data_version())
    for role in (app, superuser):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            role.execute("delete from sumaclock.cron_jobs")


def test_repair_leaves_what_was_changed_just_now_to_those_who_change_it(
    app: Connection, superuser: Connection, clock: Clock
) -> None:
    insert_tasks(superuser, 1, "now() + interval '30 days'", zone_data_version())
    assert kinds(find_drift(app, clock)) == [DriftKind.MISSING]
    assert look_for_damage(app, clock).is_none


def test_repair_lets_workers_place_what_was_left_half_way_and_what_other_zone_data_placed(
    app: Connection, superuser: Connection, clock: Clock, app_db: AppDatabase
) -> None:
    make_task_effects(superuser)
    tasks = [add_task(app) for _ in range(3)]
    with task_worker(app_db):
        for task in tasks:
            settled(app, task)
    half_way, old_zone, fine = tasks
    app.execute(
        "update sumaclock.ai_tasks set next_run_at = null, updated_at = now() - interval '2 minutes' where id = %s",
        [half_way],
    )
    app.execute("update sumaclock.ai_tasks set zone_data = '1999z' where id = %s", [old_zone])
    expected = clock_schedule(app_db, app, fine)

    seen = look_for_damage(app, clock)
    assert (seen.unplaced, seen.other_zone_data, seen.is_none) == (1, 1, False)
    done = repair(app, clock)
    again = repair(app, clock)
    assert (done.unplaced, done.other_zone_data) == (1, 1)
    assert (again.unplaced, again.other_zone_data) == (0, 0), "a run is pending already"
    with task_worker(app_db):
        placed = [settled(app, task) for task in tasks]
    assert len({task.next_run_at for task in placed}) == 1
    assert [clock_schedule(app_db, app, task) for task in tasks] == [expected] * 3
    zones = app.execute("select distinct zone_data from sumaclock.ai_tasks").fetchall()
    assert zones == [(zone_data_version(),)]
    assert look_for_damage(app, clock).is_none
