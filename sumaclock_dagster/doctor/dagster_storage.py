"""Can Dagster keep its runs and events where its URL says? Looked at through SQLAlchemy, as Dagster will."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sumaclock_dagster.db import query
from sumaclock_dagster.doctor.context import Context
from sumaclock_dagster.doctor.findings import Finding
from sumaclock_dagster.doctor.phrases import quoted
from sumaclock_dagster.doctor.reach import CONNECT_SECONDS, START_PRIVATE, unset
from sumaclock_dagster.doctor.refusals import misread, refusal
from sumaclock_dagster.model import SumaclockError

VARIABLE = "SUMACLOCK_DAGSTER_DATABASE_URL"
SCHEME = "postgresql+psycopg2"


def dagster_scheme(context: Context) -> Finding:
    try:
        text = context.settings.dagster_url
    except SumaclockError:
        return unset(VARIABLE)
    scheme, separator, _ = text.partition("://")
    if not separator:
        return misread(_plain(text), VARIABLE) or Finding("no scheme", f"{VARIABLE} has no scheme.", _remedy())
    if scheme != SCHEME:
        return Finding(
            f"scheme {scheme}",
            f"{VARIABLE} begins with {scheme}://, for which SQLAlchemy takes a driver that Dagster does not bring.",
            _remedy(),
        )
    return misread(_plain(text), VARIABLE) or Finding(f"scheme {SCHEME}")


def _remedy() -> str:
    return f"Write {VARIABLE} as {SCHEME}://role:password@host/database."


def _plain(text: str) -> str:
    return text.replace(f"{SCHEME}://", "postgresql://", 1)


def dagster_reachable(context: Context) -> Finding:
    # Imported here because it takes a seventh of a second, which no other command should pay.
    from sqlalchemy.exc import ArgumentError, DBAPIError

    text = context.settings.dagster_url
    try:
        database, role, may_create, has_tables = _look(text)
    except (ArgumentError, ValueError):
        return Finding("an unreadable URL", f"{VARIABLE} is not a database URL.", _remedy())
    except DBAPIError as error:
        finding = refusal(error.orig if isinstance(error.orig, Exception) else error, _plain(text), VARIABLE)
        private = context.settings.dagster_database_url is None
        return replace(finding, remedy=START_PRIVATE) if private else finding
    if not may_create and not has_tables:
        return Finding(
            "no right to create tables",
            f"Role '{role}' may not create Dagster's tables in database '{database}'.",
            f"As a superuser run `alter database {quoted(database)} owner to {quoted(role)};`.",
        )
    return Finding(f"database '{database}' as role '{role}'")


def _look(url: str) -> tuple[Any, ...]:
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    engine = create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": CONNECT_SECONDS})
    try:
        with engine.connect() as connection:
            return tuple(connection.exec_driver_sql(query("look_at_dagster_storage").decode()).one())
    finally:
        engine.dispose()
