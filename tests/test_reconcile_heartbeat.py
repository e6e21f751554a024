"""Heartbeat: what the clock missed is fired once, late, and with the key that its firing would have had."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import class_row

from sumaclock_dagster.calendar import pg_cron_for, zone_data_version
from sumaclock_dagster.clock.faults import Fault, FaultKind
from sumaclock_dagster.clock.jobs import database_time, pause_job
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection, connect, query
from sumaclock_dagster.reconcile import heartbeat
from sumaclock_dagster.reconcile.drift import find_drift
from sumaclock_dagster.reconcile.heartbeat import Beat, Late, LateTask, beat, look_for_late
from sumaclock_dagster.reconcile.reasons import why_late, why_missed
from sumaclock_dagster.reconcile.repair import repair
from sumaclock_dagster.reconcile.sync import sync
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.kinds import TaskKinds, TaskRun
from sumaclock_dagster.tasks.records import TaskStatus, TaskTrigger, idempotency_key
from tests.conftest import AppDatabase
from tests.reconcile import cron_as_superuser, insert_jobs, insert_tasks, new_job, silent_since
from tests.tasks import (
    add_task,
    call,
    clock_schedule,
    core_api_keys,
    fire,
    make_due,
    make_task_effects,
    settled,
    task_effects,
    task_worker,
)
from tests.waiting import until

RETENTION = 30


@pytest.fixture
def clock(app: Connection, app_db: AppDatabase) -> Iterator[Clock]:
    with open_clock(app, app_db.cron_url) as opened:
        yield opened


def one(app: Connection, statement: str, *values: Any) -> Any:
    row = app.execute(statement, list(values)).fetchone()
    assert row is not None
    return row[0]


def last_looked(app: Connection, minutes_ago: int) -> None:
    """As if the last look had been then, and every job older."""
    app.execute(
        "update sumaclock.missed_firings_look"
        " set looked_until = date_trunc('minute', now()) - %s * interval '1 minute'",
        [minutes_ago],
    )
    app.execute("update sumaclock.cron_jobs set updated_at = now() - %s * interval '1 minute'", [minutes_ago + 60])


AS_IF_LATE = """
    select id as task_id, title, cron_job_id as job_id, next_run_at as scheduled_at, 0::bigint as run_id,
           0.0::float8 as late_seconds, 0::bigint as told
    from sumaclock.ai_tasks order by id"""


# ---- tasks


def test_rule_9_a_task_whose_clock_stopped_for_ten_minutes_fires_once_late_and_is_placed_again(
    app: Connection, superuser: Connection, clock: Clock, app_db: AppDatabase
) -> None:
    make_task_effects(superuser)
    late, fine = add_task(app), add_task(app)
    with task_worker(app_db):
        settled(app, late), settled(app, fine)
        expected = clock_schedule(app_db, app, fine)
        clock.unschedule(api.get(app, late).cron_job_id)
        due = make_due(app, late, minutes_ago=10)
        assert look_for_late(app, RETENTION) == Late(tasks=1, jobs=0)

        (found,) = beat(app, RETENTION).tasks

        assert (found.task_id, found.scheduled_at) == (late, due)
        assert 600 <= found.late_seconds < 720
        assert why_late(app, clock, [found]) == {late: "It has no clock job."}
        settled(app, late)
        # The clock wakes up and fires what it owes as well.
        fire(app, late)
        task = settled(app, late)
    (run,) = api.list_task_runs(app, late)
    assert (run.scheduled_for, run.trigger, run.status) == (due, TaskTrigger.HEARTBEAT, "done")
    assert run.idempotency_key == idempotency_key(late, due)
    assert task_effects(app, late) == [(due, "heartbeat")]
    assert core_api_keys(app, late) == [run.idempotency_key]
    assert task.next_run_at == api.get(app, fine).next_run_at
    assert clock_schedule(app_db, app, late) == expected
    assert look_for_late(app, RETENTION) == Late(0, 0)
    assert beat(app, RETENTION) == Beat()


@pytest.mark.parametrize(
    ("minutes_ago", "run", "late"), [(2, None, 0), (4, None, 1), (4, "pending", 0), (4, "ended", 1)]
)
def test_a_task_is_late_after_three_minutes_unless_a_run_of_it_is_open(
    minutes_ago: int, run: str | None, late: int, app: Connection, superuser: Connection
) -> None:
    insert_tasks(superuser, 1, f"now() - interval '{minutes_ago} minutes'", zone_data_version())
    if run:
        app.execute("insert into sumaclock.cron_runs (job_id) select id from sumaclock.cron_jobs")
    if run == "ended":
        app.execute(
            "update sumaclock.cron_runs set status = 'failed', error = 'E', claimed_by = 0, finished_at = now()"
        )
    assert look_for_late(app, RETENTION).tasks == late
    assert len(beat(app, RETENTION).tasks) == late


def test_a_late_task_fires_even_where_its_jobs_row_was_disabled_by_hand(
    app: Connection, superuser: Connection, app_db: AppDatabase
) -> None:
    make_task_effects(superuser)
    insert_tasks(superuser, 1, "now() - interval '5 minutes'", zone_data_version())
    app.execute("update sumaclock.cron_jobs set enabled = false")
    (found,) = beat(app, RETENTION).tasks
    with task_worker(app_db):
        settled(app, found.task_id)
    assert task_effects(app, found.task_id) == [(found.scheduled_at, "heartbeat")]


def test_reasons_tell_the_clocks_faults_apart(
    app: Connection, superuser: Connection, clock: Clock, app_db: AppDatabase
) -> None:
    insert_tasks(superuser, 3, "now() - interval '5 minutes'", zone_data_version())
    missing, elsewhere, silent = beat(app, RETENTION).tasks
    clock.schedule(elsewhere.job_id, "1 1 1 1 *")
    at = silent.scheduled_at
    clock.schedule(silent.job_id, f"{at.minute} {at.hour} {at.day} {at.month} *")
    reasons = why_late(app, clock, [missing, elsewhere, silent])
    assert reasons[missing.task_id] == "It has no clock job."
    assert reasons[elsewhere.task_id].startswith("Its clock job is at '1 1 1 1 *' instead of")
    assert reasons[silent.task_id] == silent_since(app, silent.scheduled_at)
    gone = [Fault(FaultKind.LAUNCHER_GONE, "The launcher is gone.", "Restart.")]
    reasons = why_late(app, clock, [missing, silent], gone)
    assert reasons[missing.task_id] == "It has no clock job.", "which would have been silent without any fault"
    assert reasons[silent.task_id] == "launcher_gone: The launcher is gone."
    with Clock("postgresql://sumaclock_app@127.0.0.1:1/postgres", app_db.name) as away:
        assert "Cannot connect" in why_late(app, away, [missing])[missing.task_id]


def test_a_firing_that_failed_is_the_reason_with_what_pg_cron_noted(
    app: Connection, superuser: Connection, clock: Clock, app_db: AppDatabase
) -> None:
    row = app.execute("select date_trunc('minute', pg_postmaster_start_time()) + interval '1 minute'").fetchone()
    assert row is not None
    insert_tasks(superuser, 2, f"timestamptz '{row[0].isoformat()}'", zone_data_version())
    late = app.cursor(row_factory=class_row(LateTask)).execute(AS_IF_LATE).fetchall()
    for task in late:
        clock.schedule(task.job_id, pg_cron_for(task.scheduled_at))
    failing = clock.find(late[0].job_id)
    assert failing is not None
    with cron_as_superuser(app_db) as cron:
        try:
            cron.execute(
                "insert into cron.job_run_details (jobid, runid, database, username, command, status, return_message)"
                " select %s, coalesce(max(runid), 0) + 1000000, %s, 'sumaclock_app', '', 'failed', 'ERROR:  no\nmore'"
                " from cron.job_run_details",
                [failing.jobid, app_db.name],
            )
            reasons = why_late(app, clock, late)
        finally:
            cron.execute("delete from cron.job_run_details where jobid = %s", [failing.jobid])
    assert [reasons[task.task_id] for task in late] == [
        "Its firing failed: ERROR:  no.",
        "Its clock job did not fire: see `sumaclock doctor`.",
    ]


def test_a_thousand_late_among_a_hundred_thousand_cost_one_statement_and_fire_once_each(
    app: Connection, superuser: Connection, app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert_tasks(superuser, 99_000, "now() + interval '9 days'", zone_data_version(), "quick")
    insert_tasks(superuser, 1_000, "now() - interval '7 minutes'", zone_data_version(), "quick")
    superuser.execute("analyze sumaclock.ai_tasks, sumaclock.cron_jobs")

    sent: list[str] = []

    def noted(name: str) -> bytes:
        sent.append(name)
        return query(name)

    monkeypatch.setattr(heartbeat, "query", noted)
    began = time.monotonic()
    assert look_for_late(app, RETENTION) == Late(1_000, 0)
    found, sent[:] = [*sent], []
    assert len(beat(app, RETENTION).tasks) == 1_000
    assert found.count("count_late_tasks") == sent.count("fire_late_tasks") == 1
    assert max(len(found), len(sent)) <= 7, "with the lock, the look for jobs and its note"
    took = time.monotonic() - began
    assert took < 5, f"{took:.1f} s"
    assert beat(app, RETENTION) == Beat(), "their runs are pending"

    kinds = TaskKinds()

    @kinds.register("quick")
    def quick(run: TaskRun) -> None:
        logging.getLogger("test").debug(run.idempotency_key)

    ended = "select count(*) from sumaclock.cron_runs where finished_at is not null"
    with task_worker(app_db, kinds):
        until(lambda: one(app, ended) == 1_000, 60, "a thousand runs to end", poll_seconds=0.2)
    counted = (
        "select count(*), count(distinct task_id), count(*) filter (where trigger = 'heartbeat' and status = 'done')"
    )
    assert app.execute(f"{counted} from sumaclock.ai_task_runs").fetchone() == (1_000, 1_000, 1_000)
    assert look_for_late(app, RETENTION) == Late(0, 0)


def test_heartbeats_at_once_fire_each_late_task_and_each_missed_firing_once(
    app: Connection, superuser: Connection, app_db: AppDatabase
) -> None:
    insert_tasks(superuser, 200, "now() - interval '5 minutes'", zone_data_version())
    insert_jobs(app, 200, "* * * * *")
    last_looked(app, 30)
    start = threading.Barrier(4)

    def beats() -> int:
        with connect(app_db.app_url, "test heartbeat") as own:
            start.wait(10)
            fired = [beat(own, RETENTION) for _ in range(5)]
        return sum(len(one.tasks) + len(one.jobs) for one in fired)

    with ThreadPoolExecutor(4) as pool:
        assert sum(done.result(60) for done in [pool.submit(beats) for _ in range(4)]) == 400
    written = "select count(*), count(distinct job_id) from sumaclock.cron_runs where trigger = 'catch_up'"
    assert app.execute(written).fetchone() == (400, 400)


def test_a_heartbeat_leaves_where_another_is_at_work(app: Connection, app_db: AppDatabase) -> None:
    with connect(app_db.app_url, "test heartbeat") as other, other.transaction():
        beat(other, RETENTION)
        assert beat(app, RETENTION) == Beat(looked=False)
    assert beat(app, RETENTION) == Beat()


def test_a_heartbeat_that_is_cut_off_half_way_fires_nothing_and_the_next_one_all(
    app: Connection, superuser: Connection, app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert_tasks(superuser, 3, "now() - interval '5 minutes'", zone_data_version())
    due = heartbeat._due

    def cut_off(conn: Connection, retention_days: int) -> Any:
        assert one(conn, "select count(*) from sumaclock.cron_runs") == 3, "written, and not committed"
        superuser.execute("select pg_terminate_backend(%s)", [conn.info.backend_pid])
        return due(conn, retention_days)

    with connect(app_db.app_url, "test heartbeat") as killed, monkeypatch.context() as patch:
        patch.setattr(heartbeat, "_due", cut_off)
        with pytest.raises(psycopg.OperationalError):
            beat(killed, RETENTION)
    assert one(app, "select count(*) from sumaclock.cron_runs") == 0
    assert len(beat(app, RETENTION).tasks) == 3


def test_all_loops_at_once_in_mid_firing_while_people_edit_neither_fire_twice_nor_leave_drift(
    app: Connection, superuser: Connection, app_db: AppDatabase
) -> None:
    make_task_effects(superuser)
    tasks, edited = [add_task(app) for _ in range(40)], [add_task(app) for _ in range(8)]
    stop = threading.Event()

    def loops() -> int:
        rounds = 0
        with connect(app_db.app_url, "test loops") as own, open_clock(own, app_db.cron_url) as own_clock:
            while not stop.is_set():
                repair(own, own_clock)
                beat(own, RETENTION)
                sync(own, own_clock)
                rounds += 1
        return rounds

    def edit() -> int:
        edits = 0
        with connect(app_db.app_url, "test editor") as own:
            while not stop.is_set() or edits < len(edited):
                task = edited[edits % len(edited)]
                call(own, "update_task", task_id=task, cron=f"{edits % 60} 9 * * MON")
                if edits % 3 == 0:
                    call(own, "pause_task", task_id=task)
                    call(own, "resume_task", task_id=task)
                edits += 1
        return edits

    with ThreadPoolExecutor(3) as pool, task_worker(app_db):
        for task in tasks:
            settled(app, task)
        running = [*(pool.submit(loops) for _ in range(2)), pool.submit(edit)]
        try:
            due = {task: make_due(app, task, minutes_ago=4) for task in tasks}
            for task in tasks[::2]:
                fire(app, task, count=2)
            placed = "select count(*) from sumaclock.ai_tasks where next_run_at > now() and id = any (%s)"
            until(lambda: one(app, placed, tasks) == len(tasks), 60, "every task to be placed again")
            for task in tasks:
                settled(app, task)
        finally:
            stop.set()
        assert all(done.result(60) > 1 for done in running)
        for task in edited:
            assert settled(app, task, 60).status == TaskStatus.ACTIVE
    assert [len(task_effects(app, task)) for task in tasks] == [1] * len(tasks)
    assert {task: task_effects(app, task)[0][0] for task in tasks} == due
    assert [task_effects(app, task) for task in edited] == [[]] * len(edited), "none of theirs was due"
    with open_clock(app, app_db.cron_url) as clock:
        assert find_drift(app, clock) == []


# ---- raw jobs


def five_minute_mark(app: Connection) -> datetime:
    """The last minute before three minutes ago that '*/5 * * * *' knows."""
    at = (database_time(app) - timedelta(minutes=3)).replace(second=0, microsecond=0)
    return at - timedelta(minutes=at.minute % 5)


def catch_ups(app: Connection, job_id: UUID) -> list[tuple[datetime, str, str | None]]:
    return app.execute(
        "select scheduled_at, status::text, error from sumaclock.cron_runs where job_id = %s and trigger = 'catch_up'",
        [job_id],
    ).fetchall()


def test_what_a_raw_job_missed_is_written_once_as_its_policy_says(app: Connection) -> None:
    # Without clock jobs: pg_cron must not fire one in the middle.
    catching, not_catching = insert_jobs(app, 2, "*/5 * * * *")
    app.execute("update sumaclock.cron_jobs set catch_up = 'none' where id = %s", [not_catching])
    last_looked(app, 30)
    assert look_for_late(app, RETENTION) == Late(tasks=0, jobs=2)
    before = five_minute_mark(app)
    jobs = beat(app, RETENTION).jobs
    # The minute may have turned in between.
    marks = {before, five_minute_mark(app)}

    assert {job.job_id: job.status for job in jobs} == {catching: "pending", not_catching: "skipped"}
    away = [Fault(FaultKind.STANDBY, "It is a standby.", "Promote it.")]
    assert why_missed(app, jobs, away) == dict.fromkeys((catching, not_catching), "standby: It is a standby.")
    silent = silent_since(app, jobs[0].scheduled_at)
    assert why_missed(app, jobs)[catching] in (silent, "The clock missed it.")
    ((moment, status, error),) = catch_ups(app, catching)
    assert moment in marks
    assert (status, error) == ("pending", None)
    ((moment, status, error),) = catch_ups(app, not_catching)
    assert moment in marks
    assert (status, error) == ("skipped", "Missed by the clock; the job's catch-up policy is none.")
    assert beat(app, RETENTION).jobs == []


def test_what_a_raw_job_did_not_miss_is_not_written(app: Connection, clock: Clock, superuser: Connection) -> None:
    schedule = "*/5 * * * *"
    fired, edited, paused, new, deleted = (new_job(app, clock, schedule) for _ in range(5))
    insert_jobs(app, 1, "no schedule at all")
    insert_tasks(superuser, 1, "now() + interval '1 day'", zone_data_version())
    last_looked(app, 30)
    app.execute("insert into sumaclock.cron_runs (job_id, scheduled_at) values (%s, now())", [fired])
    app.execute("update sumaclock.cron_jobs set updated_at = now() where id = any (%s)", [[edited, new]])
    pause_job(app, clock, paused)
    app.execute("delete from sumaclock.cron_jobs where id = %s", [deleted])

    assert look_for_late(app, RETENTION) == Late(0, 0)
    assert beat(app, RETENTION) == Beat()


def test_a_look_that_finds_nothing_is_the_last_look(app: Connection) -> None:
    insert_jobs(app, 1, "* * * * *")
    last_looked(app, 30)
    app.execute("update sumaclock.cron_jobs set enabled = false")
    assert look_for_late(app, RETENTION) == Late(0, 0)
    app.execute("update sumaclock.cron_jobs set enabled = true")
    looked = one(app, "select looked_until >= now() - interval '5 minutes' from sumaclock.missed_firings_look")
    assert looked is True
    assert look_for_late(app, RETENTION).jobs <= 1


def test_a_last_look_from_before_the_retention_does_not_take_pruned_runs_for_missed(
    app: Connection,
) -> None:
    at = database_time(app) - timedelta(days=40)
    insert_jobs(app, 1, f"0 0 {at.day} {at.month} *")
    last_looked(app, 50 * 24 * 60)
    assert look_for_late(app, RETENTION) == Late(0, 0)
    last_looked(app, 50 * 24 * 60)
    assert look_for_late(app, 60) == Late(0, 1)


def test_a_missed_firing_is_executed_by_a_worker(app: Connection, app_db: AppDatabase) -> None:
    insert_jobs(app, 1, "* * * * *")
    last_looked(app, 10)
    (missed,) = beat(app, RETENTION).jobs
    with task_worker(app_db):
        row = until(
            lambda: app.execute(
                "select status::text, trigger::text from sumaclock.cron_runs where id = %s and finished_at is not null",
                [missed.run_id],
            ).fetchone(),
            10,
            "the run to end",
        )
    # This worker has no handler of the kind; what counts is that the run was claimed and ended.
    assert row == ("failed", "catch_up")
