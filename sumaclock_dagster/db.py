"""Connections and named queries: the only door to PostgreSQL."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool

from sumaclock_dagster import arrays

Connection = psycopg.Connection[Any]


# A dead peer is noticed within about 25 s.
OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def connect(url: str, application_name: str, *, connect_timeout: int = 10) -> Connection:
    """Open an autocommit connection in UTC that notices a dead peer within about 25 s.

    Raises psycopg.OperationalError; libpq's text names host and port and never the password.
    """
    conn: Connection = psycopg.connect(
        url, application_name=application_name, connect_timeout=connect_timeout, **OPTIONS
    )
    _prepare(conn)
    return conn


def make_pool(url: str, application_name: str, most: int, preparation: str) -> ConnectionPool[Connection]:
    """A pool of up to `most` such connections, made when they are asked for, each prepared by the query that
    `preparation` names and tried before it is lent."""

    def prepare(conn: Connection) -> None:
        _prepare(conn)
        conn.execute(query(preparation))

    def tried(conn: Connection) -> None:
        ConnectionPool.check_connection(conn)

    return ConnectionPool(
        url,
        kwargs={**OPTIONS, "application_name": application_name, "connect_timeout": 10},
        min_size=0,
        max_size=most,
        timeout=10,
        configure=prepare,
        check=tried,
        open=True,
        name=application_name,
    )


def _prepare(conn: Connection) -> None:
    arrays.register(conn)
    # Not as a start-up option: poolers refuse or ignore those.
    if conn.info.parameter_status("TimeZone") != "UTC":
        conn.execute(query("use_utc"))


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
