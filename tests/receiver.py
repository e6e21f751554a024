"""A receiver of core-api jobs on loopback, which fails in every way that a test asks for, and counts."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any


@dataclass(frozen=True)
class Arrival:
    """One request. `nth`: which one with this key, from 1 on. `at`: monotonic seconds."""

    key: str
    nth: int
    at: float
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What the receiver does. work: have the effect before. how: answer, hang, reset, garbage, drip or drip-body."""

    status: int = 200
    body: bytes = b'{"ok":true}'
    headers: dict[str, str] = field(default_factory=dict)
    work: bool = True
    how: str = "answer"
    takes_seconds: float = 0.0


Behaviour = Callable[[Arrival], Answer]


class Receiver:
    """honours: does the work of a key once, as a receiver should. `effects` counts the work by key."""

    def __init__(self, behave: Behaviour, honours: bool = True) -> None:
        self.behave = behave
        self.honours = honours
        self.arrivals: list[Arrival] = []
        self.effects: Counter[str] = Counter()
        self.most_at_once = 0
        self.closing = threading.Event()
        self._at_once = 0
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                receiver.handle(self)

            do_PUT = do_PATCH = do_DELETE = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def keys(self) -> list[str]:
        return [arrival.key for arrival in self.arrivals]

    def times(self, key: str) -> list[float]:
        return [arrival.at for arrival in self.arrivals if arrival.key == key]

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        key = request.headers.get("Idempotency-Key", "")
        with self._lock:
            self._seen[key] += 1
            arrival = Arrival(
                key, self._seen[key], monotonic(), request.command, request.path, dict(request.headers.items()), body
            )
            self.arrivals.append(arrival)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            answer = self.behave(arrival)
            self.closing.wait(answer.takes_seconds)
            if answer.work:
                with self._lock:
                    self.effects[key] = 1 if self.honours else self.effects[key] + 1
        finally:
            with self._lock:
                self._at_once -= 1
        self._answer(request, answer)

    def _answer(self, request: BaseHTTPRequestHandler, answer: Answer) -> None:
        request.close_connection = answer.how != "answer"
        match answer.how:
            case "answer":
                request.send_response(answer.status)
                for name, value in answer.headers.items():
                    request.send_header(name, value)
                request.send_header("Content-Length", str(len(answer.body)))
                request.end_headers()
                request.wfile.write(answer.body)
            case "hang":
                self.closing.wait(60)
            case "reset":
                request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                request.connection.close()
            case "garbage":
                request.wfile.write(b"\x00\xff not http at all\r\n\r\n")
            case "drip":
                self._drip(request, b"HTTP/1.1 200 OK\r\nX-Slow: ")
            case "drip-body":
                self._drip(request, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")

    def _drip(self, request: BaseHTTPRequestHandler, start: bytes) -> None:
        with suppress(OSError):
            request.wfile.write(start)
            while not self.closing.wait(0.05):
                request.wfile.write(b"x")

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def receiving(behave: Behaviour = lambda arrival: Answer(), honours: bool = True) -> Iterator[Receiver]:
    receiver = Receiver(behave, honours)
    try:
        yield receiver
    finally:
        receiver.close()
