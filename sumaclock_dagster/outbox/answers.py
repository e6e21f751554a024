"""What an answer of core-api, or its absence, means for a core-api job."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from http import HTTPStatus
from urllib.parse import quote, urlsplit

from sumaclock_dagster.storable import clean_text

RESPONSE_MAX_CHARS = 4_000
ERROR_MAX_CHARS = 1_000
RETRY_AFTER_MAX_SECONDS = 86_400.0
# The receiver has done the work for this key already.
ALREADY_DONE = 409
AGAIN = {408, 425, 429}
# These speak of the receiver, not of the request.
AWAY = {429, 502, 503, 504}


class Verdict(Enum):
    DONE = "done"
    FINAL = "final"
    AGAIN = "again"


@dataclass(frozen=True, slots=True)
class Reply:
    """One attempt's outcome, storable as it is.

    status: of HTTP, None without an answer. retry_after_seconds: what the receiver asked for, 0.0 for nothing.
    away: the attempt says that the receiver is away or overloaded, whatever it was asked.
    """

    verdict: Verdict
    status: int | None
    error: str | None
    response: str | None
    retry_after_seconds: float = 0.0
    away: bool = False


def judge(status: int, reason: str, headers: Mapping[str, str], body: bytes, now: float, secrets: Secrets) -> Reply:
    """now: epoch seconds of the database's clock, against which a date in Retry-After counts, unless the receiver says
    what its own clock shows."""
    response = secrets.hide(_clean(body.decode("utf-8", "replace"))) or None
    response = response[:RESPONSE_MAX_CHARS] if response else None
    said = f"{status} {_clean(reason) or _phrase(status)}".strip()
    if 200 <= status < 300 or status == ALREADY_DONE:
        return Reply(Verdict.DONE, status, None, response)
    if status in AGAIN or status >= 500 or status < 200:
        wait = retry_after_seconds(headers, now)
        error = f"core-api answered {said}" + (f" and asks to wait {wait:.0f} s." if wait else ".")
        return Reply(Verdict.AGAIN, status, secrets.error(error), response, wait, status in AWAY)
    if status < 400:
        error = (
            f"core-api answered {said}, a redirect{_target(headers)}. Redirects are not followed, since the token "
            "would go along: correct SUMACLOCK_CORE_API_URL or the job's path."
        )
    else:
        remedy = " Look at SUMACLOCK_CORE_API_TOKEN." if status in (401, 403) else ""
        error = f"core-api refused it with {said}, which another attempt would not change.{remedy}"
    return Reply(Verdict.FINAL, status, secrets.error(error), response)


def no_answer(error: BaseException, where: str, secrets: Secrets) -> Reply:
    """The request may have been carried out or not: nobody knows."""
    text = f"No answer from core-api at {where}: {type(error).__name__}: {error}"
    return Reply(Verdict.AGAIN, None, secrets.error(text), None, away=True)


def retry_after_seconds(headers: Mapping[str, str], now: float) -> float:
    """Retry-After as seconds from now, at most a day; 0.0 without one that can be read."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text[:12]), RETRY_AFTER_MAX_SECONDS))
    until = _epoch(text)
    if until is None:
        return 0.0
    receivers_now = _epoch(headers.get("date", ""))
    return min(max(0.0, until - (now if receivers_now is None else receivers_now)), RETRY_AFTER_MAX_SECONDS)


class Secrets:
    """Takes the token out of texts, in every form in which a receiver may give it back."""

    def __init__(self, token: str | None) -> None:
        forms = set()
        if token:
            encoded = base64.b64encode(token.encode()).decode().rstrip("=")
            forms = {token, json.dumps(token)[1:-1], token.replace("/", "\\/"), quote(token, safe=""), encoded}
        self._forms = sorted(forms, key=len, reverse=True)

    @property
    def longest(self) -> int:
        return max(map(len, self._forms), default=0)

    def hide(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, "[token]")
        return text

    def error(self, text: str) -> str:
        return self.hide(_clean(text))[:ERROR_MAX_CHARS]


def _clean(text: str) -> str:
    return clean_text(text, len(text))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _target(headers: Mapping[str, str]) -> str:
    """Where to, without what a URL may hide."""
    try:
        parts = urlsplit(headers.get("location", ""))
        host = f"{parts.scheme}://{parts.hostname}" if parts.hostname else ""
    except ValueError:
        return ""
    target = f"{host}{parts.path}"[:200]
    return f" to {target}" if target else ""


def _epoch(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
