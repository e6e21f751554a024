"""What the tests of one-off commands share."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from sumaclock_dagster.db import Connection, connect, with_database
from tests.conftest import AppDatabase, TestCluster
from tests.waiting import until

# Procedures that commit cannot pin a path, and who acts for a role's own rows only is a definer: see test_once_hostile.
FUNCTIONS = [
    "needs_no_transaction",
    "schedule_once",
    "cancel_once",
    "retry_once",
    "end_attempt",
    "look_at_queue",
    "claim_command",
    "finish_command",
    "fail_command",
    "hold_overdue_commands",
    "clean_session",
    "run_jobs",
    "watch_jobs",
    "note_runners",
    "job_queue_by_role",
    "prune_job_errors",
    "allow_once",
]
RUN = "call sumaclock.run_jobs()"
WATCH = "call sumaclock.watch_jobs()"


def note_runners(conn: Connection) -> None:
    """The connection's role may queue; who calls run_jobs is the test."""
    conn.execute("select sumaclock.note_runners(current_user, 4)")


def queue(conn: Connection, command: str, **options: Any) -> int:
    """Call schedule_once as an app would. Returns the jobid."""
    named = "".join(f", {name} => %({name})s" for name in options)
    row = conn.execute(
        f"select sumaclock.schedule_once(%(command)s{named})", {"command": command, **options}
    ).fetchone()
    assert row is not None
    return int(row[0])


def run_due(url: str) -> None:
    """Be a runner for one look, in a session of its own, as pg_cron would."""
    with connect(url, "test runner") as conn:
        conn.execute(RUN)


def queued(conn: Connection) -> list[int]:
    """The ids of all commands in the queue that the connection may see."""
    return [row[0] for row in conn.execute("select jobid from sumaclock.job_queue order by jobid").fetchall()]


def failed(conn: Connection, jobid: int) -> Any:
    """The row of job_errors: sqlstate, message, detail, hint, context, attempts; None when there is none."""
    return conn.execute(
        "select sqlstate, message, detail, hint, context, attempts from sumaclock.job_errors where jobid = %s", [jobid]
    ).fetchone()


def make_due(superuser: Connection) -> None:
    """What waits for its next attempt need not wait any longer."""
    superuser.execute("update sumaclock.job_queue set due_at = now() where claimed_at is null")


@contextmanager
def runner_in_background(url: str) -> Iterator[threading.Thread]:
    """One look of a runner in a thread; its session may be killed."""

    def run() -> None:
        with connect(url, "test runner") as conn:
            try:
                conn.execute(RUN)
            except psycopg.OperationalError:
                assert conn.broken

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield thread
    thread.join(30)
    assert not thread.is_alive(), "the runner did not end"


@dataclass(frozen=True)
class Role:
    """A login role of the test's own, which may queue commands. url: the app database as this role."""

    name: str
    url: str


@contextmanager
def login_role(cluster: TestCluster, app_db: AppDatabase, superuser: Connection) -> Iterator[Role]:
    """A role that may queue, gone at the end. The test removes its clock jobs before."""
    name = f"r_{uuid.uuid4().hex[:8]}"
    quoted = sql.Identifier(name)
    superuser.execute(sql.SQL("create role {} login").format(quoted))
    try:
        superuser.execute("select sumaclock.allow_once(%s)", [name])
        cluster.private.admit_roles(superuser)
        role = Role(name, url_of(app_db, name))
        until(lambda: may_connect(role.url), what=f"role {name} to be let in")
        with connect(role.url, "test role") as conn:
            note_runners(conn)
        yield role
    finally:
        with connect(with_database(app_db.superuser_url, "postgres"), "test clean-up") as conn:
            # A row of cron.job whose role is gone would stop every job of the cluster.
            conn.execute("delete from cron.job where username = %s", [name])
        superuser.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = %s",
            [name],
        )
        superuser.execute(sql.SQL("drop owned by {}").format(quoted))
        superuser.execute(sql.SQL("drop role {}").format(quoted))


def url_of(app_db: AppDatabase, role: str) -> str:
    return app_db.app_url.replace("user=sumaclock_app", f"user={role}").replace("//sumaclock_app@", f"//{role}@")


def may_connect(url: str) -> bool:
    try:
        with connect(url, "test look"):
            return True
    except psycopg.OperationalError:
        return False
