"""Jobs in seconds, and `overlap`: a firing while the job's last run is open writes none, so no backlog can grow."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner

from sumaclock_dagster.cli.main import main
from sumaclock_dagster.clock.command import firing_command, is_careful, skips
from sumaclock_dagster.clock.jobs import change_job, create_job, database_time, get_job, pause_job, resume_job
from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.handlers import HandlerRun, Handlers
from sumaclock_dagster.model import Job, SumaclockError
from sumaclock_dagster.queue.runs import fire
from sumaclock_dagster.reconcile import heartbeat
from sumaclock_dagster.reconcile.drift import DriftKind, find_drift
from sumaclock_dagster.reconcile.heartbeat import beat, look_for_late
from sumaclock_dagster.reconcile.sync import sync
from sumaclock_dagster.reports.clock_health import clock_life, feel_pulse
from tests.conftest import AppDatabase
from tests.waiting import until
from tests.workers import running

FAR = "0 0 29 2 *"
NO_SECONDS = "the installed pg_cron knows no seconds"
RETENTION = 30


@pytest.fixture
def clock(app: Connection, app_db: AppDatabase) -> Iterator[Clock]:
    with open_clock(app, app_db.cron_url) as clock:
        yield clock


def add(app: Connection, clock: Clock, schedule: str = FAR, **changes: Any) -> Job:
    values: dict[str, Any] = {"kind": "demo", "organization_id": "acme", "user_id": "ada", "payload": {}}
    return create_job(app, clock, schedule=schedule, **{**values, **changes})


def insert_job(app: Connection, schedule: str, overlap: str) -> UUID:
    """The row alone: pg_cron does not come in between."""
    row = app.execute(
        "insert into sumaclock.cron_jobs (kind, organization_id, user_id, schedule, overlap, updated_at)"
        " values ('demo', 'acme', 'ada', %s, %s, now() - interval '1 day') returning id",
        [schedule, overlap],
    ).fetchone()
    assert row is not None
    return UUID(str(row[0]))


def by_clock(conn: Connection, job_id: UUID) -> None:
    """Fire as pg_cron does: the careful command in one round."""
    conn.execute(firing_command(job_id, careful=True).encode())


def runs(app: Connection, job_id: UUID) -> int:
    return int(app.execute("select count(*) from sumaclock.cron_runs where job_id = %s", [job_id]).fetchall()[0][0])


def end_runs(app: Connection, job_id: UUID) -> None:
    app.execute(
        "update sumaclock.cron_runs set status = 'done', claimed_by = 1, attempts = 1, started_at = now(),"
        " finished_at = now() where job_id = %s and finished_at is null",
        [job_id],
    )


def claim_runs(app: Connection, job_id: UUID) -> None:
    app.execute(
        "update sumaclock.cron_runs set status = 'running', claimed_by = 1, attempts = 1, started_at = now(),"
        " heartbeat_at = now() where job_id = %s and status = 'pending'",
        [job_id],
    )


# ---- which command


@pytest.mark.parametrize(
    ("schedule", "overlap", "skip", "careful"),
    [
        ("5 seconds", "auto", True, True),
        ("5 seconds", "skip", True, True),
        ("5 seconds", "allow", False, True),
        ("* * * * *", "auto", False, False),
        ("* * * * *", "skip", True, True),
        ("* * * * *", "allow", False, False),
    ],
)
def test_by_default_schedules_in_seconds_skip_and_all_others_allow(
    schedule: str, overlap: str, skip: bool, careful: bool
) -> None:
    assert (skips(schedule, overlap), is_careful(schedule, overlap)) == (skip, careful)


def test_rule_1_the_careful_command_is_one_fixed_text_too() -> None:
    one, two = uuid4(), uuid4()
    text = firing_command(one, careful=True)
    assert text.replace(str(one), str(two)) == firing_command(two, careful=True)
    assert text.count("insert into") == 1
    with pytest.raises(TypeError, match="UUID and nothing else"):
        firing_command(f"{one}'); drop table sumaclock.cron_jobs; --", careful=True)  # type: ignore[arg-type]


def test_overlap_chooses_the_clock_jobs_command_and_an_edit_changes_it(app: Connection, clock: Clock) -> None:
    def command(job: Job) -> str | None:
        found = clock.find(job.id)
        return found.command if found else None

    plain, skipping = add(app, clock), add(app, clock, overlap="skip")
    assert (plain.overlap, skipping.overlap) == ("auto", "skip")
    assert command(plain) == firing_command(plain.id)
    assert command(skipping) == firing_command(skipping.id, careful=True)

    change_job(app, clock, plain.id, overlap="skip")
    change_job(app, clock, skipping.id, overlap="allow")
    assert command(plain) == firing_command(plain.id, careful=True)
    assert command(skipping) == firing_command(skipping.id)

    pause_job(app, clock, plain.id)
    assert command(plain) is None
    resume_job(app, clock, plain.id)
    assert command(plain) == firing_command(plain.id, careful=True)
    assert find_drift_of(app, clock, plain.id, skipping.id) == []


@pytest.mark.parametrize("overlap", ["", "never", "SKIP", "skip\0"])
def test_an_unknown_overlap_is_refused(app: Connection, clock: Clock, overlap: str) -> None:
    with pytest.raises(SumaclockError, match="overlap"):
        add(app, clock, overlap=overlap)
    assert app.execute("select count(*) from sumaclock.cron_jobs").fetchone() == (0,)


def test_the_other_command_is_drift_that_a_sync_mends(app: Connection, clock: Clock) -> None:
    skipping, plain = add(app, clock, overlap="skip"), add(app, clock)
    clock.schedule(skipping.id, FAR)
    clock.schedule(plain.id, FAR, careful=True)
    assert find_drift_of(app, clock, skipping.id, plain.id) == [DriftKind.COMMAND] * 2
    assert sync(app, clock).placed >= 2
    assert find_drift_of(app, clock, skipping.id, plain.id) == []
    found = clock.find(skipping.id)
    assert found is not None
    assert found.command == firing_command(skipping.id, careful=True)


def find_drift_of(app: Connection, clock: Clock, *jobs: UUID) -> list[DriftKind]:
    return [drift.kind for drift in find_drift(app, clock) if drift.job_id in jobs]


def test_the_command_line_takes_shows_and_changes_overlap(
    app: Connection, app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", app_db.app_url)
    monkeypatch.setenv("SUMACLOCK_CRON_DATABASE_URL", app_db.cron_url)

    def said(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["jobs", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    owner = ("--kind", "demo", "--org", "acme", "--user", "ada", "--schedule", FAR)
    made = json.loads(said("add", *owner, "--overlap", "skip", "--json"))
    assert made["overlap"] == "skip"
    shown = said("show", made["id"])
    assert "overlap      skip: no firing while a run is pending or running" in shown
    assert "in place" in shown
    assert json.loads(said("edit", made["id"], "--overlap", "auto", "--json"))["overlap"] == "auto"
    shown = said("show", made["id"])
    assert "overlap      allow: fires whatever still runs (auto)" in shown
    assert "in place" in shown
    refused = CliRunner().invoke(main, ["jobs", "edit", made["id"], "--overlap", "never"])
    assert refused.exit_code == 2


# ---- what the careful command writes


def test_a_firing_while_the_last_run_is_open_writes_none_and_wakes_nobody(app: Connection, app_db: AppDatabase) -> None:
    job = insert_job(app, FAR, "skip")
    with connect(app_db.app_url, "test firing") as clock_session:
        app.execute("listen cron_runs")
        by_clock(clock_session, job)
        assert [note.channel for note in app.notifies(timeout=5, stop_after=1)] == ["cron_runs"]
        by_clock(clock_session, job)
        assert runs(app, job) == 1, "pending"
        claim_runs(app, job)
        by_clock(clock_session, job)
        assert runs(app, job) == 1, "running"
        clock_session.execute("notify cron_runs, 'that was all'")
        assert [note.payload for note in app.notifies(timeout=5, stop_after=1)] == ["that was all"]
        end_runs(app, job)
        by_clock(clock_session, job)
        assert runs(app, job) == 2, "ended"


def test_a_firing_of_a_job_that_allows_or_is_gone(app: Connection) -> None:
    job = insert_job(app, "5 seconds", "allow")
    for _ in range(3):
        by_clock(app, job)
    assert runs(app, job) == 3
    by_clock(app, uuid4())
    assert app.execute("select count(*) from sumaclock.cron_runs").fetchone() == (3,)


def test_a_schedule_in_seconds_is_late_by_seconds_and_not_since_the_minute(app: Connection) -> None:
    seconds, minutes = insert_job(app, "5 seconds", "auto"), insert_job(app, FAR, "skip")
    for job in (seconds, minutes):
        by_clock(app, job)
    times = dict(app.execute("select job_id, scheduled_at - due_at from sumaclock.cron_runs").fetchall())
    assert times[seconds] == timedelta(0)
    minute = app.execute("select scheduled_at from sumaclock.cron_runs where job_id = %s", [minutes]).fetchone()
    assert minute is not None
    assert (minute[0].second, minute[0].microsecond) == (0, 0)


def test_a_run_that_waits_for_its_next_attempt_is_open(app: Connection) -> None:
    job = insert_job(app, FAR, "skip")
    app.execute(
        "insert into sumaclock.cron_runs (job_id, scheduled_at, due_at, attempts, error)"
        " values (%s, now() - interval '1 hour', now() + interval '1 hour', 1, 'Connection refused')",
        [job],
    )
    # A person fired it since, and that run has ended.
    fired = fire(app, job)
    app.execute(
        "update sumaclock.cron_runs set status = 'done', claimed_by = 1, attempts = 1, started_at = now(),"
        " finished_at = now() where id = %s",
        [fired],
    )
    by_clock(app, job)
    assert runs(app, job) == 2


def test_of_two_firings_in_one_instant_the_second_waits_and_writes_none(app: Connection, app_db: AppDatabase) -> None:
    job = insert_job(app, FAR, "skip")
    with (
        connect(app_db.app_url, "test first") as first,
        connect(app_db.app_url, "test second") as second,
        ThreadPoolExecutor(1) as pool,
    ):
        first.execute("begin")
        by_clock(first, job)
        late = pool.submit(by_clock, second, job)
        waiting = "select wait_event from pg_catalog.pg_stat_activity where pid = %s"
        until(lambda: app.execute(waiting, [second.info.backend_pid]).fetchone() == ("advisory",), 10, "it to wait")
        first.execute("commit")
        late.result(10)
    assert runs(app, job) == 1


def test_of_many_firings_at_once_one_is_written(app: Connection, app_db: AppDatabase) -> None:
    job, count = insert_job(app, FAR, "skip"), 12
    start = threading.Barrier(count)

    def fire_once() -> None:
        with connect(app_db.app_url, "test firing") as conn:
            start.wait(20)
            by_clock(conn, job)

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(fire_once) for _ in range(count)]:
            done.result(30)
    assert runs(app, job) == 1


def test_the_look_at_the_last_runs_costs_the_same_however_long_the_history(app: Connection) -> None:
    job = insert_job(app, "1 seconds", "auto")
    app.execute(
        "insert into sumaclock.cron_runs (job_id, scheduled_at, status, claimed_by, attempts, started_at, finished_at)"
        " select %s, now() - i * interval '1 second', 'done', 1, 1, now(), now() from generate_series(1, 20000) i",
        [job],
    )
    insert = firing_command(job, careful=True).partition("; ")[2].rstrip(";")
    plan = app.execute(f"explain (analyze, buffers, format json) {insert}".encode()).fetchall()[0][0][0]
    assert "cron_runs_job" in str(plan)
    assert plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] < 200


# ---- missed firings and the clock's health


def last_looked(app: Connection, minutes_ago: int) -> None:
    app.execute(
        "update sumaclock.missed_firings_look"
        " set looked_until = date_trunc('minute', now()) - %s * interval '1 minute'",
        [minutes_ago],
    )


def add_run(app: Connection, job: UUID, began: datetime, ended: datetime | None) -> None:
    app.execute(
        "insert into sumaclock.cron_runs (job_id, scheduled_at, due_at, status, claimed_by, attempts, started_at,"
        " heartbeat_at, finished_at) values (%(job)s, %(began)s, %(began)s,"
        " case when %(ended)s::timestamptz is null then 'running' else 'done' end::sumaclock.run_status, 1, 1,"
        " %(began)s, now(), %(ended)s)",
        {"job": job, "began": began, "ended": ended},
    )


def test_a_skipped_firing_is_not_missed_and_a_missed_one_still_is(app: Connection) -> None:
    minute = timedelta(minutes=1)
    now = database_time(app).replace(second=0, microsecond=0)
    # Each five minutes, the last of them three to seven minutes ago.
    mark = now - 3 * minute
    mark -= timedelta(minutes=mark.minute % 5)
    schedule = ",".join(str(value) for value in range(mark.minute % 5, 60, 5)) + " * * * *"
    still_open, was_open, free, allowing, in_seconds = (
        insert_job(app, *what)
        for what in (
            (schedule, "skip"),
            (schedule, "skip"),
            (schedule, "skip"),
            (schedule, "allow"),
            ("5 seconds", "auto"),
        )
    )
    add_run(app, still_open, mark - 30 * minute, None)
    add_run(app, was_open, mark - 30 * minute, mark + minute / 2)
    add_run(app, free, mark - 30 * minute, mark - minute / 2)
    add_run(app, allowing, mark - 30 * minute, None)
    add_run(app, in_seconds, mark - 30 * minute, mark - 20 * minute)
    last_looked(app, 20)

    assert look_for_late(app, RETENTION).jobs == 2
    assert {job.job_id for job in beat(app, RETENTION).jobs} == {free, allowing}
    assert look_for_late(app, RETENTION).jobs == 0


def missed_job(app: Connection) -> UUID:
    """A job that skips and missed its last minute."""
    mark = database_time(app) - timedelta(minutes=5)
    last_looked(app, 20)
    return insert_job(app, f"{mark.minute} * * * *", "skip")


def test_a_firing_that_meets_a_catch_up_waits_for_it_and_writes_none(app: Connection, app_db: AppDatabase) -> None:
    job = missed_job(app)
    waiting = "select wait_event from pg_catalog.pg_stat_activity where pid = %s"
    with (
        connect(app_db.app_url, "test heartbeat") as heart,
        connect(app_db.app_url, "test firing") as firing,
        ThreadPoolExecutor(1) as pool,
    ):
        with heart.transaction():
            assert [missed.job_id for missed in beat(heart, RETENTION).jobs] == [job]
            late = pool.submit(by_clock, firing, job)
            until(lambda: app.execute(waiting, [firing.info.backend_pid]).fetchone() == ("advisory",), 60, "a wait")
        late.result(60)
    assert runs(app, job) == 1


def test_a_catch_up_that_meets_a_firing_writes_none(app: Connection, app_db: AppDatabase) -> None:
    job = missed_job(app)
    with connect(app_db.app_url, "test firing") as firing:
        firing.execute("begin")
        by_clock(firing, job)
        assert beat(app, RETENTION).jobs == []
        firing.execute("commit")
    assert (runs(app, job), beat(app, RETENTION).jobs) == (1, [])


def test_catch_ups_of_many_jobs_that_skip_are_held_some_at_a_time(
    app: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "HELD", 2)
    jobs = {missed_job(app) for _ in range(5)}
    assert {missed.job_id for missed in beat(app, RETENTION).jobs} == jobs
    assert beat(app, RETENTION).jobs == []


@pytest.mark.parametrize("state", ["pending", "running"])
def test_a_person_who_fires_means_it_and_the_clock_waits_for_that_run_too(app: Connection, state: str) -> None:
    job = insert_job(app, FAR, "skip")
    by_clock(app, job)
    if state == "running":
        claim_runs(app, job)
    fire(app, job)
    assert runs(app, job) == 2
    end_runs(app, job)
    fire(app, job)
    by_clock(app, job)
    assert runs(app, job) == 3


def test_a_clock_that_rightly_fires_nothing_is_alive(app: Connection) -> None:
    job = insert_job(app, "5 seconds", "auto")
    now = database_time(app)
    add_run(app, job, now - timedelta(hours=2), None)
    life = clock_life(app, feel_pulse(app, RETENTION), RETENTION)
    assert (life.expected, life.launcher and life.is_alive) == (None, True), "its run is still open"

    add_run(app, insert_job(app, "* * * * *", "skip"), now - timedelta(hours=2), now)
    life = clock_life(app, feel_pulse(app, RETENTION), RETENTION)
    assert (life.expected, life.is_alive) == (None, True), "its run has just ended"


# ---- with real pg_cron


def test_seconds_are_taken_where_pg_cron_knows_them_and_refused_elsewhere(app: Connection, clock: Clock) -> None:
    if clock.features().seconds:
        job = add(app, clock, "59 seconds")
        found = clock.find(job.id)
        assert found is not None
        assert (found.schedule, found.command) == ("59 seconds", firing_command(job.id, careful=True))
        assert get_job(app, job.id).overlap == "auto"
    else:
        for attempt in (add_seconds, edit_to_seconds):
            with pytest.raises(SumaclockError, match=NO_SECONDS) as refused:
                attempt(app, clock)
            assert "'* * * * *' for every minute, or upgrade pg_cron" in str(refused.value)
        assert all(job.schedule == FAR for job in clock.listed())


def add_seconds(app: Connection, clock: Clock) -> Job:
    return add(app, clock, "30 seconds")


def edit_to_seconds(app: Connection, clock: Clock) -> Job:
    return change_job(app, clock, add(app, clock).id, schedule="1 seconds")


@pytest.mark.firing
def test_a_slow_handler_grows_no_backlog(app: Connection, app_db: AppDatabase, clock: Clock) -> None:
    if not clock.features().seconds:
        pytest.skip(NO_SECONDS)
    handlers, begun, let_go = Handlers(), threading.Semaphore(0), threading.Event()

    @handlers.register("slow")
    def slow(run: HandlerRun) -> None:
        begun.release()
        let_go.wait(60)

    details = "select count(*) from cron.job_run_details where database = %s and status = 'succeeded'"
    with connect(app_db.cron_url, "test details") as cron, running(app_db, handlers):
        job = add(app, clock, "1 seconds", kind="slow")

        def firings() -> int:
            return int(cron.execute(details, [app_db.name]).fetchall()[0][0])

        assert begun.acquire(timeout=20)
        until(lambda: firings() >= 4, 30, "pg_cron to fire four times")
        assert runs(app, job.id) == 1
        let_go.set()
        until(lambda: runs(app, job.id) >= 4, 30, "runs to come each second again")
        pause_job(app, clock, job.id)
    lateness = "select max(started_at - scheduled_at) from sumaclock.cron_runs where started_at is not null"
    worst = app.execute(lateness).fetchone()
    assert worst is not None
    assert worst[0] < timedelta(seconds=20)


@pytest.mark.firing
def test_pg_cron_runs_the_careful_command_at_the_minute(app: Connection, app_db: AppDatabase, clock: Clock) -> None:
    free, taken = (add(app, clock, "* * * * *", overlap="skip") for _ in range(2))
    fire(app, taken.id)
    details = (
        "select d.status, d.return_message from cron.job_run_details d join cron.job j using (jobid)"
        " where j.jobname = %s and d.status in ('succeeded', 'failed')"
    )
    with connect(app_db.cron_url, "test details") as cron:

        def end(job: Job) -> Any:
            return cron.execute(details, [f"{app_db.name}:cron:{job.id}"]).fetchone()

        ends = [until(lambda job=job: end(job), 80, "the minute") for job in (free, taken)]  # type: ignore[misc]
    assert [status for status, _ in ends] == ["succeeded"] * 2, ends
    assert (runs(app, free.id), runs(app, taken.id)) == (1, 1)
