"""Opening a connection, or saying why not without showing a secret."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.model import SumaclockError


def connect_or_refuse(url: str, application_name: str, variable: str) -> Connection:
    """An open connection. Raises SumaclockError that names `variable`, the setting that holds the URL."""
    target = describe_target(url, variable)
    try:
        return connect(url, application_name)
    except psycopg.OperationalError as error:
        raise SumaclockError(
            f"Cannot connect to {target}: {first_line(error, url)}. "
            f"Start the server, or correct {variable}; `sumaclock doctor` says more."
        ) from None


def describe_target(url: str, variable: str) -> str:
    """Database, place and role of a URL. Quotes none of it where a slip may have moved a password elsewhere."""
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.ProgrammingError:
        parts = {"host": "@"}
    host, port = parts.get("host", "the local socket"), parts.get("port", "5432")
    if "@" in host + parts.get("dbname", "") or not port.replace(",", "").isdigit():
        raise SumaclockError(
            f"{variable} is not a PostgreSQL URL. Write it as postgresql://role:password@host:5432/database, "
            "with signs such as @ : / and % in the password as %40 %3A %2F and %25."
        )
    role = parts.get("user", "")
    return f"database '{parts.get('dbname', role)}' at {host} (port {port}) as role '{role}'"


def first_line(error: psycopg.Error, url: str) -> str:
    line = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    password = str(conninfo_to_dict(url).get("password") or "")
    return line.replace(password, "***") if password else line
