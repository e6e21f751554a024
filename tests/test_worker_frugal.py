"""What keeps a run cheap: claims that write no index entry, plans that read no whole table, little work a run."""

from __future__ import annotations

import gc
import json
import logging
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sumaclock_dagster.arrays import float8_array, int2_array, int8_array, text_array
from sumaclock_dagster.db import Connection, connect, query
from sumaclock_dagster.embedded.binaries import find_binaries
from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.garbage import THRESHOLDS, rare_collections
from sumaclock_dagster.handlers import CancelFlag, HandlerRun, Handlers
from sumaclock_dagster.queue.claims import Claim, Ended, finish
from sumaclock_dagster.queue.runs import get_run
from sumaclock_dagster.queue.workers import live_workers
from sumaclock_dagster.worker.session import Session
from tests.conftest import (
    TEST_SETTINGS,
    AppDatabase,
    TestCluster,
    chosen_pg_bin,
    make_app_database,
    new_home,
    remove_cluster,
)
from tests.waiting import until
from tests.workers import add_job, add_runs, await_ended, await_status, claim, running

FINISH: dict[str, Any] = {
    "worker": 1,
    "ids": "{1,2}",
    "attempts": "{1,1}",
    "statuses": "{done,done}",
    "started": "{1,1}",
    "finished": "{2,2}",
    "results": "{NULL,NULL}",
    "errors": "{NULL,NULL}",
}
RENEW = {"worker": 1, "ids": [1, 2], "attempts": [1, 1]}


def test_a_claim_writes_no_index_entry(app: Connection) -> None:
    run_ids = add_runs(app, add_job(app, "k"), 20)
    with app.transaction():
        taken = claim(app, 1, 50)
        rewritten = app.execute(
            "select pg_stat_get_xact_tuples_updated(c), pg_stat_get_xact_tuples_hot_updated(c)"
            " from (values ('sumaclock.cron_runs'::regclass)) t (c)"
        ).fetchone()
    assert [run.id for run in taken] == run_ids
    assert rewritten == (20, 20)


def test_outcomes_leave_waiting_runs_the_room_that_their_claims_need(app_db: AppDatabase, app: Connection) -> None:
    add_runs(app, add_job(app, "k"), 3000)
    with connect(app_db.app_url, "test") as other, other.transaction():
        # While others' snapshots are open, no page is cleaned.
        other.execute("set transaction isolation level repeatable read")
        other.execute("select")
        with app.transaction():
            for _ in range(30):
                taken = claim(app, 1, 100)
                assert finish(app, 1, [Ended(run.id, run.attempt, "done", 0, 1) for run in taken]) == {
                    run.id for run in taken
                }
            (hot,) = app.execute(
                "select pg_stat_get_xact_tuples_hot_updated('sumaclock.cron_runs'::regclass)"
            ).fetchone() or (0,)
    assert hot > 2900


@pytest.mark.parametrize(("name", "parameters"), [("claim", {}), ("finish_runs", FINISH), ("renew_runs", RENEW)])
def test_a_worker_reads_no_table_whole(app_db: AppDatabase, app: Connection, name: str, parameters: Any) -> None:
    """At this size and with these statistics PostgreSQL would choose hash joins, and sort the whole backlog."""
    app.execute(
        "with jobs as (insert into sumaclock.cron_jobs (kind, organization_id, user_id, schedule)"
        " select 'k', 'acme', 'ada', '0 0 1 1 *' from generate_series(1, 10000) returning id)"
        " insert into sumaclock.cron_runs (job_id) select id from jobs"
    )
    with Session(app_db.owner_url, "test", logging.getLogger()).connection() as conn:
        conn.execute("analyze sumaclock.cron_jobs, sumaclock.cron_runs")
        Claim(conn)
        statement = b"execute sumaclock_claim (1, null, 500)" if name == "claim" else query(name)
        row = conn.execute(b"explain (format json) " + statement, parameters).fetchone()
        assert row is not None
        nodes = _nodes(row[0][0]["Plan"])
        assert not nodes & {"Seq Scan", "Bitmap Heap Scan", "Sort", "Hash Join", "Merge Join"}, json.dumps(row[0])
        assert "Index Scan" in nodes


def _nodes(plan: dict[str, Any]) -> set[str]:
    return {plan["Node Type"]}.union(*(_nodes(child) for child in plan.get("Plans", [])))


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.none() | TEXT), st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.floats(-1e300, 1e300)))
@example(["NULL", "", None, '"', "\\", '\\"', "{}", ",", " a ", "null", "'"], [], [0.1])
def test_arrays_arrive_as_they_were(
    app: Connection, texts: list[str | None], integers: list[int], floats: list[float]
) -> None:
    small = [number % 2**16 - 2**15 for number in integers]
    sent = [text_array(texts), int8_array(integers), float8_array(floats), int2_array(small)]
    got = app.execute("select %s::text[], %s::bigint[], %s::float8[], %s::smallint[]", sent).fetchone()
    assert got == (texts, integers, floats, small)


def test_whoever_waits_for_a_flag_wakes_when_it_is_set() -> None:
    flag, seen = CancelFlag(), []
    waiters = [threading.Thread(target=lambda: seen.append(flag.wait(20))) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    until(lambda: flag._event is not None, 5)
    assert not flag.is_set()
    flag.set()
    for waiter in waiters:
        waiter.join(5)
    assert seen == [True] * 3
    assert flag.is_set()
    assert flag.wait(0)


def test_a_flag_that_nobody_sets_ends_the_wait_in_time() -> None:
    assert CancelFlag().wait(0.01) is False


def test_collections_are_rare_only_while_a_worker_works() -> None:
    before = gc.get_threshold()
    with rare_collections():
        assert gc.get_threshold() == THRESHOLDS
    assert gc.get_threshold() == before


@pytest.fixture
def forgetful() -> Iterator[TestCluster]:
    """A cluster whose server writes to disk late what was committed without a flush."""
    home = new_home()
    private = PrivateCluster(home, pg_bin=chosen_pg_bin(), extra_settings={**TEST_SETTINGS, "wal_writer_delay": "10s"})
    try:
        file = private.start()
        yield TestCluster(private, home, file, find_binaries(Path(file.bin_dir)))
    finally:
        remove_cluster(private)


def test_a_claim_that_a_crash_of_the_server_forgot_is_made_again_and_its_handler_runs_once(
    forgetful: TestCluster, caplog: pytest.LogCaptureFixture
) -> None:
    app_db = make_app_database(forgetful, "forgetful")
    executed: list[int] = []
    entered, leave = threading.Event(), threading.Event()
    handlers = Handlers()

    @handlers.register("slow")
    def slow(run: HandlerRun) -> None:
        executed.append(run.attempt)
        entered.set()
        leave.wait(60)

    with running(app_db, handlers, durable_claims=False, dead_session_seconds=60, heartbeat_seconds=60):
        with connect(app_db.app_url, "test app") as app:
            (run_id,) = add_runs(app, add_job(app, "slow"))
        assert entered.wait(10)
        crash(forgetful)
        forgetful.private.start()
        with connect(app_db.app_url, "test app") as app:
            await_status(app, run_id, "running", 20)
            leave.set()
            await_ended(app, [run_id])
            made_again = get_run(app, run_id)
            (worker,) = live_workers(app)
    assert made_again.attempts == 1
    assert made_again.dagster_run_id == worker.dagster_run_id is not None, "it links to its worker's Dagster run"
    assert executed == [1]
    assert "forgot 1 claims" in caplog.text


def crash(cluster: TestCluster) -> None:
    """End the server at once, as when its machine loses power: what was not flushed is gone."""
    postmaster = psutil.Process(int((Path(cluster.file.data_dir) / "postmaster.pid").read_text().split()[0]))
    postmaster.send_signal(signal.SIGQUIT)
    postmaster.wait(20)
