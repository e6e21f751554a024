"""A limit for the whole of an attempt. httpx limits each single read, and a receiver that sends a byte now and then
would hold an attempt for ever."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import httpcore
import httpx

SocketOptions = Iterable[tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]]


class Deadline(threading.local):
    """Monotonic seconds at which this thread's attempt ends."""

    at = float("inf")

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        self.at = monotonic() + seconds
        try:
            yield
        finally:
            self.at = float("inf")

    def left(self, timeout: float | None, error: type[Exception]) -> float | None:
        """The shorter of `timeout` and what is left, or `error` when nothing is."""
        left = self.at - monotonic()
        if left <= 0:
            raise error("the attempt took too long as a whole")
        return left if timeout is None else min(timeout, left)


class DeadlineTransport(httpx.HTTPTransport):
    """httpx's own transport, each of whose reads and writes ends with `deadline`."""

    def __init__(self, deadline: Deadline, verify: ssl.SSLContext, limits: httpx.Limits) -> None:
        super().__init__(verify=verify, limits=limits, trust_env=False)
        # httpx has no argument for httpcore's network backend; httpcore documents its own for this very purpose.
        pool: Any = self._pool
        pool._network_backend = _Backend(pool._network_backend, deadline)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, inner: httpcore.NetworkBackend, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadline.left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.connect_tcp(host, port, left, local_address, socket_options), self._deadline)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._deadline.left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._deadline.left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._deadline.left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
