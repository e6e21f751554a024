"""What becomes of an attempt, by what core-api says: no server needed for that."""

from __future__ import annotations

import base64
import json
from email.utils import formatdate
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sumaclock_dagster.outbox.answers import (
    ERROR_MAX_CHARS,
    RESPONSE_MAX_CHARS,
    Secrets,
    Verdict,
    judge,
    retry_after_seconds,
)

NOW = 1_800_000_000.0
NO_SECRETS = Secrets(None)


@pytest.mark.parametrize("status", range(200, 600))
def test_every_status_has_a_verdict(status: int) -> None:
    reply = judge(status, "", {}, b"", NOW, NO_SECRETS)
    if status < 300 or status == 409:
        assert (reply.verdict, reply.error) == (Verdict.DONE, None)
    elif status in (408, 425, 429) or status >= 500:
        assert reply.verdict is Verdict.AGAIN
        assert str(status) in str(reply.error)
    else:
        assert reply.verdict is Verdict.FINAL
        assert str(status) in str(reply.error)
    assert reply.status == status
    assert reply.away == (status in (429, 502, 503, 504))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (" 7 ", 7),
        ("99999999999999999999", 86_400),
        ("-5", 0),
        ("1.5", 0),
        ("soon", 0),
        ("", 0),
        ("\u0665", 0),
        (formatdate(NOW + 90, usegmt=True), 90),
        (formatdate(NOW - 90, usegmt=True), 0),
        (formatdate(NOW + 10**7, usegmt=True), 86_400),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400),
        ("Mon, 99 Foo 2026 00:00:00 GMT", 0),
    ],
)
def test_retry_after_in_seconds_and_as_a_date(value: str, seconds: float) -> None:
    assert retry_after_seconds({"retry-after": value}, NOW) == seconds


def test_a_date_in_retry_after_counts_by_the_receivers_own_clock() -> None:
    headers = {"date": formatdate(NOW - 3600, usegmt=True), "retry-after": formatdate(NOW - 3570, usegmt=True)}
    assert retry_after_seconds(headers, NOW) == 30


def test_a_redirect_says_so_and_not_more_than_it_must() -> None:
    headers = {"location": "https://user:pw@elsewhere.example/path?session=secret"}
    error = judge(307, "Temporary Redirect", headers, b"", NOW, NO_SECRETS).error
    assert error is not None
    assert "a redirect to https://elsewhere.example/path." in error
    assert "secret" not in error
    assert "pw" not in error


@given(st.binary(max_size=9000), st.text(max_size=2000), st.sampled_from([200, 404, 500]))
def test_whatever_is_answered_can_be_stored(body: bytes, reason: str, status: int) -> None:
    reply = judge(status, reason, {}, body, NOW, NO_SECRETS)
    for text, most in ((reply.response, RESPONSE_MAX_CHARS), (reply.error, ERROR_MAX_CHARS)):
        if text is not None:
            assert len(text.encode("utf-8")) >= len(text) <= most
            assert "\0" not in text


@pytest.mark.parametrize("token", ["s3cret-token", 'with"quote', "with/slash+and=", "back\\slash"])
def test_the_token_is_taken_out_in_every_form(token: str) -> None:
    forms = [
        token,
        json.dumps({"authorization": f"Bearer {token}"}),
        quote(token, safe=""),
        base64.b64encode(token.encode()).decode(),
        token.replace("/", "\\/"),
    ]
    for form in forms:
        reply = judge(500, f"no {form}", {}, f"echo {form} echo".encode(), NOW, Secrets(token))
        for text in (reply.error, reply.response):
            assert text is not None
            assert "[token]" in text
            assert token not in text
            assert form not in text
