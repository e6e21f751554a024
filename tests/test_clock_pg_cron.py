"""Clock jobs in real pg_cron: ours alone (rule 10), over a connection that breaks, under rights that are missing."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest

from sumaclock_dagster.clock.command import firing_command
from sumaclock_dagster.clock.jobs import change_job, create_job, delete_job, pause_job, resume_job
from sumaclock_dagster.clock.pg_cron import Clock, clock_job_name, open_clock
from sumaclock_dagster.db import Connection, connect, with_database
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.raw_schedule import ClockFeatures
from tests.conftest import AppDatabase, TestCluster
from tests.waiting import until

NEVER_SOON = "0 0 1 1 *"


@pytest.fixture
def clock(app: Connection, app_db: AppDatabase) -> Iterator[Clock]:
    with open_clock(app, app_db.cron_url) as clock:
        yield clock


@pytest.fixture
def cron(cluster: TestCluster) -> Iterator[Connection]:
    """The superuser in the pg_cron database."""
    with connect(cluster.file.superuser_url, "test cron superuser") as conn:
        yield conn


def test_a_clock_job_is_placed_changed_and_removed(clock: Clock, app_db: AppDatabase, cron: Connection) -> None:
    job_id = uuid4()
    clock.schedule(job_id, NEVER_SOON)
    clock.schedule(job_id, "5 4 1 1 *")
    [found] = clock.listed()
    assert (found.job_id, found.schedule, found.command) == (job_id, "5 4 1 1 *", firing_command(job_id))
    assert clock.find(job_id) == found
    row = cron.execute("select jobname::text, database, username, active from cron.job where jobid = %s", [found.jobid])
    assert row.fetchone() == (f"{app_db.name}:cron:{job_id}", app_db.name, "sumaclock_app", True)
    clock.unschedule(job_id)
    clock.unschedule(job_id)
    assert (clock.listed(), clock.find(job_id)) == ([], None)


def test_a_clock_job_that_somebody_switched_off_is_active_again(clock: Clock, cron: Connection) -> None:
    job_id = uuid4()
    clock.schedule(job_id, NEVER_SOON)
    cron.execute("update cron.job set active = false where command = %s", [firing_command(job_id)])
    switched_off = clock.find(job_id)
    assert switched_off is not None
    assert not switched_off.active
    clock.schedule(job_id, NEVER_SOON)
    assert [found.active for found in clock.listed()] == [True]


def neighbours(name: str, ours: list[UUID]) -> list[tuple[str | None, str, str]]:
    """(job name, database, role) of clock jobs that look like ours and are not.

    All the roles exist: one row whose role does not would stop pg_cron for everybody.
    """
    job_id, upper = ours[0], str(ours[0]).upper()
    pattern = name.replace("_", "X")
    return [
        *((f"{name}:cron:{known}", f"{name}x", "sumaclock_dagster") for known in ours),
        *((f"{name}:cron:{known}", name, "sumaclock_owner") for known in ours),
        (f"{name}:cron:{uuid4()}", f"{name}x", "sumaclock_app"),
        (f"{name}x:cron:{job_id}", f"{name}x", "sumaclock_app"),
        (f"{name}x:cron:{ours[1]}", name, "sumaclock_app"),
        (f"{pattern}:cron:{job_id}", pattern, "sumaclock_app"),
        (f"{pattern}:cron:{ours[1]}", name, "sumaclock_app"),
        (f"%:cron:{job_id}", name, "sumaclock_app"),
        (f"{name[:-1]}_:cron:{job_id}", f"{name[:-1]}_", "sumaclock_app"),
        (f"{name}':cron:{job_id}", f"{name}'", "sumaclock_app"),
        (f'"{name}":cron:{job_id}', f'"{name}"', "sumaclock_app"),
        (f"{name.upper()}:cron:{job_id}", name.upper(), "sumaclock_app"),
        (f"{name}:CRON:{job_id}", name, "sumaclock_app"),
        (f"{name}:cron:{upper}", name, "sumaclock_app"),
        (f"{name}:cron:{str(job_id)[:-1]}", name, "sumaclock_app"),
        (f"{name}:cron:{job_id}x", name, "sumaclock_app"),
        (f"{name}:cron:not-a-uuid", name, "sumaclock_app"),
        (f"x{name}:cron:{job_id}", name, "sumaclock_app"),
        (f"{name}", name, "sumaclock_app"),
        ("", name, "sumaclock_app"),
        (None, name, "sumaclock_app"),
    ]


def test_rule_10_nobody_elses_jobs(app: Connection, clock: Clock, app_db: AppDatabase, cron: Connection) -> None:
    ours = [uuid4(), uuid4(), uuid4()]
    theirs = neighbours(app_db.name, ours)
    snapshot = "select * from cron.job where command = %s order by jobid"
    marker = f"select 'neighbours of {app_db.name}'"
    try:
        with cron.cursor() as cursor:
            cursor.executemany(
                "insert into cron.job (schedule, command, nodename, nodeport, database, username, jobname)"
                " values (%s, %s, 'localhost', 1, %s, %s, %s)",
                [(NEVER_SOON, marker, database, role, name) for name, database, role in theirs],
            )
        before = cron.execute(snapshot, [marker]).fetchall()
        assert len(before) == len(theirs)

        def add(job_id: UUID) -> None:
            create_job(
                app,
                clock,
                kind="k",
                organization_id="o",
                user_id="u",
                payload=1,
                schedule=NEVER_SOON,
                job_id=job_id,
            )

        for job_id in ours:
            add(job_id)
        change_job(app, clock, ours[0], schedule="1 1 1 1 *")
        pause_job(app, clock, ours[1])
        delete_job(app, clock, ours[2])
        assert [found.job_id for found in clock.listed()] == [ours[0]]
        resume_job(app, clock, ours[1])
        assert {found.job_id for found in clock.listed()} == {ours[0], ours[1]}
        for job_id in ours[:2]:
            delete_job(app, clock, job_id)
        assert clock.listed() == []
        assert cron.execute(snapshot, [marker]).fetchall() == before
    finally:
        cron.execute("delete from cron.job where command = %s", [marker])


def test_rule_10_a_neighbour_that_holds_our_very_name_is_not_changed(
    clock: Clock, app_db: AppDatabase, cron: Connection
) -> None:
    job_id = uuid4()
    name = clock_job_name(app_db.name, job_id)
    cron.execute(
        "insert into cron.job (schedule, command, nodename, nodeport, database, username, jobname)"
        " values (%s, 'select 1', 'localhost', 1, 'another', 'sumaclock_app', %s)",
        [NEVER_SOON, name],
    )
    try:
        with pytest.raises(SumaclockError, match="exists for database 'another'"):
            clock.schedule(job_id, "1 1 1 1 *")
        clock.unschedule(job_id)
        assert clock.find(job_id) is None
        kept = cron.execute("select schedule, command from cron.job where database = 'another'").fetchall()
        assert kept == [(NEVER_SOON, "select 1")]
    finally:
        cron.execute("delete from cron.job where database = 'another'")


def test_a_broken_connection_is_opened_again(clock: Clock, cron: Connection) -> None:
    job_id = uuid4()
    open_now = "select pid from pg_stat_activity where application_name = 'sumaclock clock'"
    # What earlier tests closed may be just ending.
    others = set(cron.execute(open_now).fetchall())
    ended = set()

    def kill_its_one_session() -> None:
        [(pid,)] = set(cron.execute(open_now).fetchall()) - others
        assert cron.execute("select pg_terminate_backend(%s, 30000)", [pid]).fetchone() == (True,)
        ended.add(pid)

    for schedule in ("1 1 1 1 *", "2 1 1 1 *", "3 1 1 1 *"):
        clock.schedule(job_id, schedule)
        kill_its_one_session()
    assert [found.schedule for found in clock.listed()] == ["3 1 1 1 *"]
    kill_its_one_session()
    assert len(ended) == 4
    clock.unschedule(job_id)
    assert clock.listed() == []


def test_a_closed_clock_opens_again_and_closes_its_connection(clock: Clock, cron: Connection) -> None:
    clock.listed()
    clock.close()
    alive = "select count(*) from pg_stat_activity where application_name = 'sumaclock clock'"
    until(lambda: cron.execute(alive).fetchone() == (0,), what="the end of the clock's session")
    assert clock.listed() == []


def test_two_sessions_remove_the_same_clock_jobs(app: Connection, app_db: AppDatabase, clock: Clock) -> None:
    jobs = [uuid4() for _ in range(40)]
    for job_id in jobs:
        clock.schedule(job_id, NEVER_SOON)
    barrier = threading.Barrier(3)

    def remove_all() -> int:
        with open_clock_of(app_db) as own:
            own.listed()
            for job_id in jobs:
                barrier.wait(30)
                own.unschedule(job_id)
        return len(jobs)

    with ThreadPoolExecutor(3) as pool:
        assert [done.result() for done in [pool.submit(remove_all) for _ in range(3)]] == [40, 40, 40]
    assert clock.listed() == []


def open_clock_of(app_db: AppDatabase) -> Clock:
    return Clock(app_db.cron_url, app_db.name)


def test_features_leave_nothing_behind(clock: Clock, cron: Connection) -> None:
    count = "select count(*) from cron.job"
    before = cron.execute(count).fetchone()
    found = clock.features()
    assert isinstance(found, ClockFeatures)
    assert found.seconds or not found.last_day, "every pg_cron that knows $ knows seconds"
    assert cron.execute(count).fetchone() == before


@pytest.mark.parametrize("name", ["d" * 22, "ñ" * 11])
def test_a_database_name_that_pg_cron_would_cut_is_refused(name: str, app_db: AppDatabase) -> None:
    with Clock(app_db.cron_url, name) as clock, pytest.raises(SumaclockError, match=r"22 bytes.*room for 21.*Rename"):
        clock.schedule(uuid4(), NEVER_SOON)
    assert len(clock_job_name("d" * 21, uuid4())) == 63


def test_a_missing_right_is_named_with_its_remedy(app_db: AppDatabase, cron: Connection) -> None:
    right = "execute on function cron.schedule_in_database(text, text, text, text, text, boolean)"
    with open_clock_of(app_db) as clock:
        cron.execute(f"revoke {right} from sumaclock_app")
        try:
            with pytest.raises(SumaclockError, match=r"may not use pg_cron .*schedule_in_database.*first_boot\.sql"):
                clock.schedule(uuid4(), NEVER_SOON)
        finally:
            cron.execute(f"grant {right} to sumaclock_app")
        clock.schedule(uuid4(), NEVER_SOON)
        assert len(clock.listed()) == 1


def test_a_database_without_pg_cron_is_named_with_its_remedy(app_db: AppDatabase) -> None:
    url = with_database(app_db.cron_url, app_db.name)
    with Clock(url, app_db.name) as clock:
        for attempt in (clock.listed, clock.features, lambda: clock.unschedule(uuid4())):
            with pytest.raises(SumaclockError, match=r"pg_cron 1\.4\.2 or later is not installed.*first_boot\.sql"):
                attempt()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://sumaclock_app:geheim@127.0.0.1:1/postgres", r"127\.0\.0\.1 \(port 1\) as role 'sumaclock_app'"),
        ("postgresql://sumaclock_app:ge@heim@127.0.0.1:1/postgres", "is not a PostgreSQL URL"),
        ("postgresql://sumaclock_app:geheim/postgres", "is not a PostgreSQL URL"),
        ("not a url with geheim", "is not a PostgreSQL URL"),
    ],
)
def test_an_unreachable_clock_says_where_and_shows_no_password(url: str, words: str) -> None:
    with Clock(url, "d") as clock, pytest.raises(SumaclockError, match=words) as caught:
        clock.listed()
    shown = "".join(traceback.format_exception(caught.value))
    assert "SUMACLOCK_CRON_DATABASE_URL" in shown
    assert "heim" not in shown


def test_a_schedule_that_pg_cron_refuses_is_an_error(clock: Clock) -> None:
    with pytest.raises(SumaclockError, match="pg_cron refused: invalid schedule"):
        clock.schedule(uuid4(), "61 * * * *")
    assert clock.listed() == []


def test_a_lock_on_cron_job_ends_in_a_message_not_in_a_hang(app_db: AppDatabase, cron: Connection) -> None:
    with open_clock_of(app_db) as clock:
        clock.listed()
        assert clock._connection is not None
        limit = clock._connection.execute("show statement_timeout").fetchone()
        assert limit == ("30s",)
        clock._connection.execute("set statement_timeout = '200ms'")
        with cron.transaction():
            cron.execute("lock table cron.job in access exclusive mode")
            with pytest.raises(SumaclockError, match="did not answer within 30 s"):
                clock.listed()
        assert clock.listed() == []


def test_threads_may_share_a_clock(clock: Clock) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda job_id: clock.schedule(job_id, NEVER_SOON), [uuid4() for _ in range(40)]))
    assert len(clock.listed()) == 40
