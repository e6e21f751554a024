"""What the tests of reconciliation share: jobs and tasks by the thousand, and pg_cron as a superuser sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from sumaclock_dagster.clock.jobs import create_job
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.db import Connection, connect, with_database
from tests.conftest import AppDatabase

NEVER_SOON = "0 0 29 2 *"


@contextmanager
def cron_as_superuser(app_db: AppDatabase) -> Iterator[Connection]:
    with connect(with_database(app_db.superuser_url, "postgres"), "test cron") as conn:
        yield conn


def new_job(app: Connection, clock: Clock, schedule: str = NEVER_SOON, *, enabled: bool = True) -> UUID:
    return create_job(
        app,
        clock,
        kind="demo",
        organization_id="acme",
        user_id="ada",
        payload={},
        schedule=schedule,
        enabled=enabled,
    ).id


def insert_jobs(app: Connection, count: int, schedule: str = NEVER_SOON) -> list[UUID]:
    """Rows of `cron_jobs` without clock jobs, as a restore leaves them."""
    rows = app.execute(
        "insert into sumaclock.cron_jobs (kind, organization_id, user_id, schedule)"
        " select 'demo', 'acme', 'ada', %s from generate_series(1, %s) returning id",
        [schedule, count],
    ).fetchall()
    return [row[0] for row in rows]


def insert_tasks(superuser: Connection, count: int, next_run_at: str, zone_data: str, kind: str = "effect") -> None:
    """Placed tasks with their jobs, by the thousand. `next_run_at`: SQL of a moment."""
    superuser.execute(
        f"""
        with made as (
            select gen_random_uuid() as task, gen_random_uuid() as job,
                   date_trunc('minute', {next_run_at}) as at from generate_series(1, %(count)s)
        ), jobs as (
            insert into sumaclock.cron_jobs (id, kind, organization_id, user_id, payload, schedule)
            select job, 'ai_task', 'acme', 'ada', jsonb_build_object('task_id', task),
                   to_char(at at time zone 'UTC', 'FMMI FMHH24 FMDD FMMM') || ' *' from made
            returning id
        )
        insert into sumaclock.ai_tasks (id, organization_id, user_id, kind, cron, next_run_at, zone_data, cron_job_id)
        select task, 'acme', 'ada', %(kind)s, '0 9 * * *', at, %(zone_data)s, job
        from made join jobs on jobs.id = made.job
        """,
        {"count": count, "zone_data": zone_data, "kind": kind},
    )


def clock_rows(cron: Connection, database: str) -> list[tuple[str, str, str, bool]]:
    """(name, schedule, command, active) of a database's clock jobs."""
    return cron.execute(
        "select jobname::text, schedule, command, active from cron.job where database = %s order by jobname", [database]
    ).fetchall()


def silent_since(app: Connection, minute: datetime) -> str:
    """Why a clock job that is right did not fire then: the tests' server may be younger than the minute."""
    row = app.execute("select pg_postmaster_start_time()").fetchone()
    assert row is not None
    if row[0] > minute:
        return f"PostgreSQL was started at {row[0]:%H:%M:%S} UTC, after that minute."
    return "Its clock job did not fire: see `sumaclock doctor`."
