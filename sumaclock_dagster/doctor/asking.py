"""One value from a named query."""

from __future__ import annotations

from typing import Any

from sumaclock_dagster.db import Connection, query


def value(connection: Connection, name: str, **parameters: Any) -> Any:
    """The first column of the first row, or None where there is no row."""
    row = connection.execute(query(name), parameters or None).fetchone()
    return row[0] if row else None
