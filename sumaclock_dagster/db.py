"""Connections and named queries: the only door to PostgreSQL."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

Connection = psycopg.Connection[Any]


def connect(url: str, application_name: str, *, connect_timeout: int = 10) -> Connection:
    """Open an autocommit connection in UTC that notices a dead peer within about 25 s.

    Raises psycopg.OperationalError; libpq's text names host and port and never the password.
    """
    conn = psycopg.connect(
        url,
        autocommit=True,
        application_name=application_name,
        connect_timeout=connect_timeout,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=25_000,
    )
    # Not as a start-up option: poolers refuse or ignore those.
    if conn.info.parameter_status("TimeZone") != "UTC":
        conn.execute(query("use_utc"))
    return conn


def database_name(url: str) -> str:
    """The database that a URL or conninfo names; '' where it leaves it to libpq's default."""
    return str(conninfo_to_dict(url).get("dbname") or "")


def with_database(url: str, name: str) -> str:
    """The same server and role, another database."""
    return make_conninfo(url, dbname=name)


@cache
def query(name: str) -> bytes:
    """The statement in queries/<name>.sql. Raises FileNotFoundError for a name that is not there."""
    return files("sumaclock_dagster").joinpath("queries", f"{name}.sql").read_bytes()
