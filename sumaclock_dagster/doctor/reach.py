"""Can the databases be reached, are they on one server, and is that server fit to be written to?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import psycopg

from sumaclock_dagster.clock.faults import FaultKind
from sumaclock_dagster.db import Connection, connect, query
from sumaclock_dagster.doctor.asking import value
from sumaclock_dagster.doctor.context import Context
from sumaclock_dagster.doctor.findings import Finding
from sumaclock_dagster.doctor.phrases import address
from sumaclock_dagster.doctor.refusals import misread, refusal
from sumaclock_dagster.model import SumaclockError

APP_VARIABLE = "SUMACLOCK_DATABASE_URL"
CRON_VARIABLE = "SUMACLOCK_CRON_DATABASE_URL"
OWNER_VARIABLE = "SUMACLOCK_OWNER_DATABASE_URL"
APPLICATION = "sumaclock doctor"
CONNECT_SECONDS = 5
START_PRIVATE = "Start the private cluster with `bin/up`."

# Before 15 every role may create objects in schema public of every database, so least privilege cannot hold there.
OLDEST_VERSION = 15


def app_reachable(context: Context) -> Finding:
    settings = context.settings
    named = settings.database_url is not None
    return _reach(lambda: settings.app_url, APP_VARIABLE, named, lambda opened: setattr(context, "app", opened))


def cron_reachable(context: Context) -> Finding:
    settings = context.settings
    named = settings.cron_database_url is not None or settings.database_url is not None
    return _reach(lambda: settings.cron_url, CRON_VARIABLE, named, lambda opened: setattr(context, "cron", opened))


def _reach(url_of: Callable[[], str], variable: str, named: bool, keep: Callable[[Connection], None]) -> Finding:
    """named: the environment says where, not the private cluster's file."""
    try:
        url = url_of()
    except SumaclockError:
        return unset(variable)
    opened = _open(url, variable)
    if isinstance(opened, Finding):
        stopped = opened.problem is not None and opened.problem.startswith("Nothing accepts connections")
        return replace(opened, remedy=START_PRIVATE) if stopped and not named else opened
    keep(opened)
    return Finding(f"database '{opened.info.dbname}' at {address(url)} as role '{opened.info.user}'")


def open_or_refuse(url: str, variable: str) -> Connection:
    """An open connection. Raises SumaclockError with the problem and the remedy that a failed check would show."""
    opened = _open(url, variable)
    if isinstance(opened, Finding):
        raise SumaclockError(f"{opened.problem} {opened.remedy}")
    return opened


def _open(url: str, variable: str) -> Connection | Finding:
    if slip := misread(url, variable):
        return slip
    try:
        return connect(url, APPLICATION, connect_timeout=CONNECT_SECONDS)
    except psycopg.Error as error:
        return refusal(error, url, variable)


def unset(variable: str) -> Finding:
    return Finding(
        "no URL",
        f"No database is known: neither {variable} nor a private cluster gives one.",
        f"Set {variable}, or start the private cluster with `bin/up`.",
    )


def version(context: Context) -> Finding:
    return judge_version(context.app.info.server_version)


def judge_version(server_version: int) -> Finding:
    """server_version: as libpq gives it, 150018 for 15.18."""
    found = f"PostgreSQL {server_version // 10_000}.{server_version % 10_000}"
    if server_version // 10_000 >= OLDEST_VERSION:
        return Finding(found)
    return Finding(
        found,
        f"{found} is too old, because before {OLDEST_VERSION} every role may create objects in schema public.",
        f"Upgrade the server to PostgreSQL {OLDEST_VERSION} or newer.",
    )


def primary(context: Context) -> Finding:
    if not value(context.app, "is_standby"):
        return Finding("a primary")
    return Finding(
        FaultKind.STANDBY.value,
        "The server is a standby, where nothing can be written and pg_cron does not run.",
        f"Point {APP_VARIABLE} at the primary, or promote this server.",
    )


def one_server(context: Context) -> Finding:
    if value(context.app, "read_server_start") == value(context.cron, "read_server_start"):
        return Finding("app and cron database are on one server")
    return Finding(
        "two servers",
        "The app database and the cron database are on two servers, so pg_cron cannot fire into the app database.",
        f"Let {CRON_VARIABLE} name a database of the server that {APP_VARIABLE} names.",
    )


def oldest_transaction(context: Context) -> Finding:
    oldest = context.app.execute(query("find_oldest_transaction")).fetchone()
    if oldest is None:
        return Finding("no open transaction")
    seconds, who = oldest
    found = f"the oldest open transaction is {seconds:.0f} s old ({who})"
    if seconds < context.old_transaction_seconds:
        return Finding(found)
    return Finding(
        found,
        f"A transaction has been open for {seconds / 3600:.1f} h ({who}), and vacuum cannot clean the queue meanwhile.",
        "End it, or have its application commit, and set idle_in_transaction_session_timeout.",
        warning=True,
    )
