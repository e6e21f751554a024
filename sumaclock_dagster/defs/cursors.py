"""The cursors of sensors: what a sensor last asked for, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def read_cursor(cursor: str | None, **forms: Callable[[Any], Any]) -> dict[str, Any] | None:
    """The values by name, each as its form takes it; None without a cursor, and for one of another form."""
    try:
        values = json.loads(cursor or "")
        return {name: form(values[name]) for name, form in forms.items()}
    except (ValueError, KeyError, TypeError):
        return None
