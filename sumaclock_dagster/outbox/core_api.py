"""Core-api over HTTP: one attempt, and what came of it."""

from __future__ import annotations

import ssl
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.metadata import PackageNotFoundError, version
from time import monotonic

import httpx

from sumaclock_dagster.outbox.answers import Reply, Secrets, judge, no_answer
from sumaclock_dagster.outbox.deadline import Deadline, DeadlineTransport
from sumaclock_dagster.outbox.line import Delivery

CONNECT_SECONDS = 5.0
READ_MAX_BYTES = 65_536


class CoreApi:
    """One client for all threads of a process; it keeps connections open between attempts.

    No proxy, no redirect, no cookie: what is sent goes to `url` and nowhere else. timeout_seconds: for an attempt as a
    whole, from the connection to the last byte read.
    """

    def __init__(self, url: str, token: str | None, timeout_seconds: float, connections: int) -> None:
        parts = httpx.URL(url)
        self._where = f"{parts.scheme}://{parts.netloc.decode()}"
        self._url = url.rstrip("/")
        self._secrets = Secrets(token)
        self._timeout_seconds = timeout_seconds
        self._deadline = Deadline()
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._client = httpx.Client(
            # The system's certificates, and those that SSL_CERT_FILE names.
            transport=DeadlineTransport(self._deadline, ssl.create_default_context(), limits),
            timeout=httpx.Timeout(timeout_seconds, connect=min(CONNECT_SECONDS, timeout_seconds)),
            follow_redirects=False,
            trust_env=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            headers={
                "User-Agent": f"sumaclock/{_version()}",
                "Accept": "application/json",
                # Only the beginning of an answer is read, and a few bytes must not become a flood.
                "Accept-Encoding": "identity",
                **({"Authorization": f"Bearer {token}"} if token else {}),
            },
        )

    def send(self, delivery: Delivery) -> Reply:
        """Make one attempt. Never raises: everything that can go wrong is a reply, too."""
        began = monotonic()
        headers = {"Idempotency-Key": delivery.idempotency_key}
        if delivery.body is not None:
            headers["Content-Type"] = "application/json"
        content = None if delivery.body is None else delivery.body.encode()
        try:
            with (
                self._deadline.within(self._timeout_seconds),
                self._client.stream(
                    delivery.method, self._url + delivery.path, headers=headers, content=content
                ) as response,
            ):
                body = self._read(response)
                now = delivery.now + monotonic() - began
                return judge(response.status_code, response.reason_phrase, response.headers, body, now, self._secrets)
        except Exception as error:  # noqa: BLE001  (a hostile answer may break the client in any way)
            return no_answer(error, self._where, self._secrets)

    def close(self) -> None:
        self._client.close()

    def _read(self, response: httpx.Response) -> bytes:
        """The beginning of the body. Its status says everything, so a body that breaks off changes nothing."""
        body = b""
        with suppress(httpx.HTTPError):
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > READ_MAX_BYTES:
                    # No part of a token that the cut went through.
                    return body[: READ_MAX_BYTES - self._secrets.longest]
        return body


def _version() -> str:
    try:
        return version("sumaclock-dagster")
    except PackageNotFoundError:
        return "0"
