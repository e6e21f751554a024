"""What a statement gives, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from sumaclock_dagster.db import Connection, query


def read_frame(conn: Connection, name: str, values: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of the query `name`, with its columns also where there are none."""
    cursor = conn.execute(query(name), values)
    columns = [column.name for column in cursor.description or ()]
    return pd.DataFrame(cursor.fetchall(), columns=columns)
