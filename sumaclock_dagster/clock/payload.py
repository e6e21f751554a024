"""Payloads: what a job may carry to its handler."""

from __future__ import annotations

import json
import math
from typing import Any

from sumaclock_dagster.model import SumaclockError

MAX_BYTES = 1_000_000
MAX_DEPTH = 100
INT_MAX = 10**1000


def payload_json(payload: Any) -> str:
    """The payload as JSON text that PostgreSQL stores (where numbers are decimal: 1e20 comes back as an integer).

    Raises SumaclockError that says where in the payload the fault is: NUL, lone surrogate, NaN or infinity, a value
    that JSON has no form for, nesting over 100 levels, or more than 1,000,000 bytes.
    """
    _check(payload, "payload", 0)
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    size = len(text.encode())
    if size > MAX_BYTES:
        raise SumaclockError(
            f"The payload has {size} bytes of JSON; at most {MAX_BYTES} fit. Store the data elsewhere and let the "
            "payload name it."
        )
    return text


def check_text(name: str, text: Any) -> None:
    """Raises SumaclockError for what PostgreSQL cannot store as text."""
    if not isinstance(text, str):
        raise SumaclockError(f"The {name} must be text, not {type(text).__name__}.")
    if "\0" in text:
        raise SumaclockError(f"The {name} contains a NUL character, which PostgreSQL cannot store. Remove it.")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise SumaclockError(f"The {name} contains a lone surrogate, which is no valid Unicode text. Remove it.")


def _check(value: Any, place: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise SumaclockError(f"The payload is nested over {MAX_DEPTH} levels deep. Make it flatter.")
    if isinstance(value, str):
        check_text(place, value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise SumaclockError(f"The {place} is {value}, which JSON has no form for. Use null or a text.")
    elif isinstance(value, int):
        if not -INT_MAX < value < INT_MAX:
            raise SumaclockError(f"The {place} is an integer of over 1,000 digits. Write it as text.")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise SumaclockError(f"The {place} has a key of type {type(key).__name__}; JSON keys are text.")
            check_text(f"a key of {place}", key)
            _check(item, f"{place}.{key}" if len(place) < 200 else place, depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check(item, f"{place}[{index}]" if len(place) < 200 else place, depth + 1)
    elif value is not None:
        raise SumaclockError(
            f"The {place} is of type {type(value).__name__}, which JSON has no form for. Use text, numbers, true, "
            "false, null, lists and objects."
        )
