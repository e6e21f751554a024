"""A crash of the whole server while a one-off command runs, as after `out of memory`: on a cluster of its own."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import psycopg

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.embedded.binaries import find_binaries
from tests.conftest import TestCluster, make_app_database, new_cluster, new_home, remove_cluster
from tests.once import failed, may_connect, note_runners, queue, queued, run_due
from tests.waiting import until


def test_a_crash_of_the_server_counts_as_an_attempt() -> None:
    home = new_home()
    private = new_cluster(home)
    try:
        file = private.start()
        app_db = make_app_database(TestCluster(private, home, file, find_binaries(Path(file.bin_dir))), "crashing")
        with connect(app_db.app_url, "test app") as app:
            note_runners(app)
            jobid = queue(app, "select pg_sleep(600)", max_attempts=1)
            waits = queue(app, "select 1", run_after="2999-01-01 00:00Z")
        crash_while_running(app_db.app_url)
        until(lambda: may_connect(app_db.app_url), 60, "the server to be back")
        run_due(app_db.app_url)
        with connect(app_db.app_url, "test app") as app:
            assert failed(app, jobid)[::5] == ("08006", 1)
            assert queued(app) == [waits]
    finally:
        remove_cluster(private)


def crash_while_running(url: str) -> None:
    """Be a runner, and kill its process at the server once a command runs."""
    with connect(url, "test runner") as runner:

        def work() -> None:
            try:
                runner.execute("call sumaclock.run_jobs()")
            except psycopg.OperationalError:
                assert runner.broken

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        with connect(url, "test look") as look:
            until(lambda: look.execute("select from sumaclock.job_queue where claimed_at is not null").fetchall())
            os.kill(runner.info.backend_pid, signal.SIGKILL)
            thread.join(30)
            assert not thread.is_alive()
            # The server lets people in until it has noticed.
            until(lambda: is_cut_off(look), 30, "the server to notice")


def is_cut_off(conn: Connection) -> bool:
    with suppress(psycopg.OperationalError):
        conn.execute("select")
    return conn.broken
