"""One attempt against a real server, for each way in which it can go wrong."""

from __future__ import annotations

import gzip
import logging
import socket
from time import monotonic

import pytest

from sumaclock_dagster.outbox.answers import RESPONSE_MAX_CHARS, Reply, Verdict
from sumaclock_dagster.outbox.core_api import CoreApi
from sumaclock_dagster.outbox.line import Delivery
from tests.receiver import Answer, Receiver, receiving

TOKEN = "t0ken-of-the-core-api/with+signs="  # noqa: S105
TIMEOUT_SECONDS = 0.6


def delivery(path: str = "/reminders", body: str | None = '{"a": 1}', method: str = "POST") -> Delivery:
    return Delivery(1, 1, "ai_task_run:x:2026-01-01T00:00Z", method, path, body, 0.0, 1_800_000_000.0)


def send(url: str, one: Delivery | None = None, times: int = 1) -> Reply:
    core_api = CoreApi(url, TOKEN, TIMEOUT_SECONDS, 2)
    try:
        for _ in range(times):
            reply = core_api.send(one or delivery())
        return reply
    finally:
        core_api.close()


def arrival(receiver: Receiver) -> dict[str, str]:
    return {name.lower(): value for name, value in receiver.arrivals[-1].headers.items()}


def test_what_is_sent() -> None:
    with receiving() as receiver:
        reply = send(f"{receiver.url}/base/", delivery("/reminders?x=%C3%A4&y=1"))
    assert reply == Reply(Verdict.DONE, 200, None, '{"ok":true}')
    (one,) = receiver.arrivals
    assert (one.method, one.path, one.body) == ("POST", "/base/reminders?x=%C3%A4&y=1", b'{"a": 1}')
    headers = arrival(receiver)
    assert headers["idempotency-key"] == "ai_task_run:x:2026-01-01T00:00Z"
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"].startswith("sumaclock/")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_request_without_a_body(method: str) -> None:
    with receiving() as receiver:
        assert send(receiver.url, delivery(body=None, method=method)).verdict is Verdict.DONE
    assert (receiver.arrivals[0].method, receiver.arrivals[0].body) == (method, b"")
    assert "content-type" not in arrival(receiver)


@pytest.mark.parametrize("how", ["hang", "reset", "garbage", "drip"])
def test_no_answer_is_tried_again_and_takes_no_longer_than_allowed(how: str) -> None:
    with receiving(lambda _: Answer(how=how)) as receiver:
        began = monotonic()
        reply = send(receiver.url)
        took = monotonic() - began
    assert (reply.verdict, reply.status, reply.away) == (Verdict.AGAIN, None, True)
    assert str(reply.error).startswith(f"No answer from core-api at {receiver.url}: ")
    assert took < TIMEOUT_SECONDS + 0.5


def test_a_body_that_never_ends_does_not_unsay_the_status() -> None:
    with receiving(lambda _: Answer(how="drip-body")) as receiver:
        began = monotonic()
        reply = send(receiver.url)
        assert monotonic() - began < TIMEOUT_SECONDS + 0.5
    assert (reply.verdict, reply.status) == (Verdict.DONE, 200)
    assert set(reply.response or "") == {"x"}


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    reply = send(f"http://127.0.0.1:{port}")
    assert (reply.verdict, reply.status) == (Verdict.AGAIN, None)
    assert "refused" in str(reply.error)
    unknown = send("http://core-api.invalid")
    assert (unknown.verdict, unknown.away) == (Verdict.AGAIN, True)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int) -> None:
    with receiving() as other:
        headers = {"Location": f"{other.url}/elsewhere"}
        with receiving(lambda _: Answer(status, headers=headers)) as receiver:
            reply = send(receiver.url)
        assert other.arrivals == []
    assert (reply.verdict, reply.status) == (Verdict.FINAL, status)
    assert "Redirects are not followed" in str(reply.error)


def test_an_answer_is_stored_trimmed_and_storable() -> None:
    with receiving(lambda _: Answer(body=b"\x00\xff\xfe{" + b"y" * 3_000_000)) as receiver:
        reply = send(receiver.url)
    assert reply.response is not None
    assert len(reply.response) == RESPONSE_MAX_CHARS
    assert reply.response.startswith("\ufffd\ufffd\ufffd{yyy")


def test_a_packed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    with receiving(lambda _: Answer(body=bomb, headers={"Content-Encoding": "gzip"})) as receiver:
        reply = send(receiver.url)
    assert reply.verdict is Verdict.DONE
    assert arrival(receiver)["accept-encoding"] == "identity"
    assert "0000000000" not in str(reply.response)


def test_no_cookie_and_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with receiving(lambda _: Answer(headers={"Set-Cookie": "session=1; Path=/"})) as receiver:
        assert send(receiver.url, times=2).verdict is Verdict.DONE
    assert len(receiver.arrivals) == 2
    assert "cookie" not in arrival(receiver)


@pytest.mark.parametrize("status", [200, 307, 401, 500])
def test_the_token_is_in_no_error_answer_or_log(status: int, caplog: pytest.LogCaptureFixture) -> None:
    # A cut through the middle of the token must leave no part of it, either.
    body = b"x" * 65_530 + TOKEN.encode()
    answers = [TOKEN.encode() * 300, body]
    caplog.set_level(logging.DEBUG)
    for text in answers:
        behave = Answer(status, body=text, headers={"Location": f"/{TOKEN}"})
        with receiving(lambda _, behave=behave: behave) as receiver:
            reply = send(receiver.url)
        assert TOKEN not in f"{reply.response}{reply.error}"
        assert TOKEN[:12] not in f"{reply.response}{reply.error}"
    # The server's own header, which this test makes repeat the token, is the only line that may have it.
    lines = [record.getMessage() for record in caplog.records]
    assert lines
    assert not [line for line in lines if f"Bearer {TOKEN}" in line]
