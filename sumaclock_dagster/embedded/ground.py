"""The databases that the stack stands on: the private cluster, or a server that the environment names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import psycopg

from sumaclock_dagster.clock.jobs import create_job, get_job
from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import connect
from sumaclock_dagster.doctor import CheckOutcome, run_checks
from sumaclock_dagster.doctor.reach import OWNER_VARIABLE, open_or_refuse
from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.migrate import load_migrations, migrate, pending
from sumaclock_dagster.model import Job, SumaclockError
from sumaclock_dagster.once.runners import place_runners
from sumaclock_dagster.queue.workers import live_workers
from sumaclock_dagster.settings import Settings

DEMO_JOB = uuid5(NAMESPACE_URL, "sumaclock:demo")
DEMO_SCHEDULE = "* * * * *"
APPLICATION = "sumaclock up"


def private_cluster(settings: Settings, say: Callable[[str], None]) -> PrivateCluster | None:
    """The cluster of this home; None where SUMACLOCK_DATABASE_URL names a server, whatever the home holds."""
    if settings.database_url is not None:
        return None
    named = os.environ.get("SUMACLOCK_PG_BIN")
    return PrivateCluster(settings.home, say=say, pg_bin=Path(named) if named else None)


def prepare_named_server(settings: Settings, say: Callable[[str], None]) -> None:
    """Migrate it, where that is to be done, and check it. Raises SumaclockError with a sentence and the remedy for each
    check that failed."""
    if settings.dagster_database_url is None:
        raise SumaclockError(
            "SUMACLOCK_DATABASE_URL is set, so SUMACLOCK_DAGSTER_DATABASE_URL must be set too: "
            "postgresql+psycopg2://role:password@host/database. Unset both for a private cluster."
        )
    _migrate(settings, say)
    results = run_checks(settings)
    for result in results:
        if result.outcome is CheckOutcome.WARNING:
            say(f"Warning: {result.problem} {result.remedy}")
    failed = [result for result in results if result.outcome is CheckOutcome.FAILED]
    if failed:
        sentences = [f"- {result.problem}\n  {result.remedy}" for result in failed]
        raise SumaclockError("\n".join(["The server that SUMACLOCK_DATABASE_URL names is not ready:", *sentences]))


def ensure_demo_job(settings: Settings) -> Job:
    """The demo job, made if it is not there. A paused one stays paused. Raises SumaclockError."""
    with connect(settings.app_url, APPLICATION) as app, open_clock(app, settings.cron_url, settings.clock) as clock:
        try:
            return get_job(app, DEMO_JOB)
        except SumaclockError:
            return create_job(
                app,
                clock,
                kind="demo",
                organization_id="demo",
                user_id="demo",
                payload={},
                schedule=DEMO_SCHEDULE,
                job_id=DEMO_JOB,
            )


def ensure_runners(settings: Settings) -> None:
    """The runners of the app role's one-off commands, as many as the settings say. Raises SumaclockError."""
    with connect(settings.app_url, APPLICATION) as app, open_clock(app, settings.cron_url) as clock:
        place_runners(app, clock, settings.job_runners)


def a_worker_lives(settings: Settings) -> bool:
    try:
        with connect(settings.app_url, APPLICATION) as app:
            return bool(live_workers(app))
    except psycopg.Error:
        return False


def _migrate(settings: Settings, say: Callable[[str], None]) -> None:
    """Does nothing where the app role cannot even look; the checks then say why."""
    files = load_migrations()
    try:
        with connect(settings.app_url, APPLICATION, connect_timeout=5) as app:
            if not pending(app, files):
                return
    except (psycopg.Error, SumaclockError):
        return
    if settings.owner_database_url is None:
        return
    with open_or_refuse(settings.owner_url, OWNER_VARIABLE) as owner:
        for name in migrate(owner, files):
            say(f"Migration {name} applied")
