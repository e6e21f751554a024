"""Makes whatever a handler returns or raises storable: valid jsonb, valid text, bounded in size (rule 2).

PostgreSQL's jsonb takes no NUL, no lone surrogate, no NaN, no number beyond its numeric type, and text takes no NUL.
"""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Mapping
from typing import Any

from sumaclock_dagster.model import Done, Failed, Handed, Outcome, RetryLater, Skip

ERROR_MAX_CHARS = 20_000
MESSAGE_MAX_CHARS = 4_000
DEPTH_MAX = 100
INT_MAX = 10**1000
DELAY_MAX_SECONDS = 366 * 86_400.0


def result_json(value: Any, max_bytes: int) -> str | None:
    """JSON text that PostgreSQL stores, or None for None. What JSON has no form for is stored as its text;
    a result over `max_bytes` is stored as {"truncated": true, "bytes": n, "start": the first 1,000 characters}."""
    if value is None:
        return None
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
        plain = "\\u" not in text and len(text) < 4000
    except Exception:  # noqa: BLE001  (a handler's object may raise anything while it is read)
        text, plain = "", False
    if not plain:
        text = _tamed_json(value)
    if len(text) > max_bytes:
        text = json.dumps({"truncated": True, "bytes": len(text), "start": text[:1000]})
    return text


def error_text(error: BaseException) -> str:
    """Type, message and traceback of what a handler raised, from the handler's first own frame on."""
    message = clean_text(_str(error), MESSAGE_MAX_CHARS)
    head = f"{type(error).__name__}: {message}" if message else type(error).__name__
    try:
        own = error.__traceback__.tb_next if error.__traceback__ else None
        frames = "".join(traceback.format_tb(own, limit=-30))
    except Exception:  # noqa: BLE001  (a traceback is a help, never a reason to lose the error)
        frames = ""
    return clean_text(f"{head}\n\n{frames}".rstrip(), ERROR_MAX_CHARS)


def storable_outcome(outcome: Outcome) -> Outcome:
    """The outcome with plain, bounded texts and numbers. Raises what a handler's object raises while it is read, so
    it belongs where a handler's errors are caught."""
    match outcome:
        case Done() | Handed():
            return outcome
        case Failed(error):
            return Failed(clean_text(str(error), ERROR_MAX_CHARS))
        case RetryLater(seconds, reason):
            return RetryLater(_delay(seconds), clean_text(str(reason), ERROR_MAX_CHARS))
        case Skip(reason):
            return Skip(clean_text(str(reason), ERROR_MAX_CHARS))


def clean_text(text: str, max_chars: int) -> str:
    """The text without NUL and lone surrogates, cut in its middle when it is too long."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    text = text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text
    if len(text) > max_chars:
        half = max_chars // 2 - 20
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters cut ...\n{text[-half:]}"
    return text


def _delay(seconds: Any) -> float:
    try:
        value = float(seconds)
    except OverflowError:
        return DELAY_MAX_SECONDS
    except (TypeError, ValueError):
        return 0.0
    return min(max(value, 0.0), DELAY_MAX_SECONDS) if value == value else 0.0


def _tamed_json(value: Any) -> str:
    try:
        return json.dumps(_tame(value, 0), allow_nan=False, separators=(",", ":"))
    except Exception as error:  # noqa: BLE001  (see result_json)
        return json.dumps({"unstorable": type(value).__name__, "because": clean_text(_str(error), 1000)})


def _tame(value: Any, depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return clean_text(str.__str__(value), 100_000_000)
    if isinstance(value, int):
        return int(value) if -INT_MAX < value < INT_MAX else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(float(value))
    if depth >= DEPTH_MAX:
        return "nested too deeply"
    if isinstance(value, Mapping):
        return {clean_text(_str(key), 1000): _tame(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_tame(item, depth + 1) for item in value]
    return clean_text(_str(value), 10_000)


def _str(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001  (a hostile __str__ must not take the run with it)
        return f"<{type(value).__name__} that cannot be shown>"
