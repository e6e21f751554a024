"""Writing core-api jobs. Delivery runs come by themselves: a trigger of the table asks for one at the commit."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError

METHODS = ("POST", "PUT", "PATCH", "DELETE")
KEY = re.compile(r"[!-~]{1,255}")
PATH = re.compile(r"/([!\"$-.0-~][!\"$-~]*)?")
PATH_MAX_CHARS = 2000
BODY_MAX_BYTES = 1_000_000
# JSON's escape of NUL, after an even number of backslashes.
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def queue_delivery(
    conn: Connection,
    *,
    idempotency_key: str,
    organization_id: str,
    user_id: str,
    path: str,
    body: Any = None,
    method: str = "POST",
) -> bool:
    """Write a request to core-api in the caller's transaction. False when the key exists already, whatever that one
    asks for: the first one counts.

    idempotency_key: 1 to 255 visible ASCII characters. path: below SUMACLOCK_CORE_API_URL, beginning with "/"; may hold
    a query. body: anything JSON-able, up to 1 MB; None sends no body. Raises SumaclockError before anything is written
    when one of them is not fit to be sent.
    """
    _check(idempotency_key, organization_id, user_id, method, path)
    values = {
        "idempotency_key": idempotency_key,
        "organization_id": organization_id,
        "user_id": user_id,
        "method": method,
        "path": path,
        "body": None if body is None else _json(body, idempotency_key),
    }
    return conn.execute(query("insert_core_api_job"), values).fetchone() is not None


def revive_delivery(conn: Connection, idempotency_key: str) -> None:
    """Deliver a failed core-api job after all, with the same key, and as if it had been written now. Raises
    SumaclockError when there is no failed one with that key."""
    if conn.execute(query("revive_core_api_job"), {"idempotency_key": idempotency_key}).fetchone() is None:
        raise SumaclockError(f"No failed core-api job has the idempotency key {idempotency_key!r}.")


def _check(key: str, organization_id: str, user_id: str, method: str, path: str) -> None:
    if not KEY.fullmatch(key):
        raise SumaclockError(f"Idempotency key {key!r:.300} must be 1 to 255 visible ASCII characters without spaces.")
    where = f"Core-api job '{key}'"
    for name, value in (("organization_id", organization_id), ("user_id", user_id)):
        if not 1 <= len(value) <= 200:
            raise SumaclockError(f"{where}: {name} must be 1 to 200 characters, not {len(value)}.")
    if method not in METHODS:
        raise SumaclockError(f"{where}: method {method!r:.40} must be one of {', '.join(METHODS)}.")
    if not PATH.fullmatch(path) or len(path) > PATH_MAX_CHARS or _climbs(path):
        raise SumaclockError(
            f"{where}: path {path!r:.300} must begin with one '/', hold at most {PATH_MAX_CHARS} visible ASCII "
            "characters (percent-encode others), no '#', and no '.' or '..' between slashes."
        )


def _climbs(path: str) -> bool:
    # Decoded, since a server may do that before it takes dots for a way up.
    segments = re.split(r"[/\\]", unquote(path.partition("?")[0]))
    return any(segment in (".", "..") for segment in segments)


def _json(body: Any, key: str) -> str:
    where = f"Core-api job '{key}': its body"
    try:
        text = json.dumps(body, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise SumaclockError(f"{where} has no form in JSON: {type(error).__name__}: {error!s:.300}") from error
    if NUL.search(text):
        raise SumaclockError(f"{where} holds the character NUL, which PostgreSQL can't store.")
    if size > BODY_MAX_BYTES:
        raise SumaclockError(f"{where} has {size:,} bytes; at most {BODY_MAX_BYTES:,} are delivered. Send a reference.")
    return text
