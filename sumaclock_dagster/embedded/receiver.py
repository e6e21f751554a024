"""A stand-in for core-api while people try things out: takes every request, does nothing, and tells what came.

`python -m sumaclock_dagster.embedded.receiver PORT` serves on loopback and writes a line for each request.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST = "127.0.0.1"
GOT = "core-api got "
KEYS_MAX = 100_000
BODY_MAX_BYTES = 2_000_000
SHOWN_CHARS = 300


class Keys:
    """The idempotency keys that came lately; a receiver that honours them does nothing for one that it knows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, None] = OrderedDict()

    def is_new(self, key: str) -> bool:
        with self._lock:
            new = key not in self._seen
            self._seen[key] = None
            if len(self._seen) > KEYS_MAX:
                self._seen.popitem(last=False)
            return new


def make_server(port: int) -> ThreadingHTTPServer:
    """A server that is bound and not yet serving. Raises OSError when the port is taken."""
    keys = Keys()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # One that keeps a connection open and says nothing must not keep a thread for ever.
        timeout = 60

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "0")
            if not length.isdigit() or int(length) > BODY_MAX_BYTES:
                self.close_connection = True
                self._answer(413, {"error": "too large"})
                return
            body = self.rfile.read(int(length))
            key = self.headers.get("Idempotency-Key", "")
            new = keys.is_new(key)
            print(line(self.command, self.path, key, body, new), flush=True)  # noqa: T201  (its output is its purpose)
            self._answer(200, {"received": True, "known": not new})

        do_PUT = do_PATCH = do_DELETE = do_POST

        def _answer(self, status: int, value: dict[str, Any]) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing beyond the line above; headers hold a token."""

    return ThreadingHTTPServer((HOST, port), Handler)


def line(method: str, path: str, key: str, body: bytes, new: bool) -> str:
    """What people see of a request: one line, without anything that could command a terminal."""
    shown = body.decode("utf-8", "replace")
    again = "" if new else " (again, so a receiver that honours the key does nothing)"
    text = f"{GOT}{method} {path}, key {key or '-'}{again}: {shown or 'no body'}"
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return plain if len(plain) <= SHOWN_CHARS else f"{plain[:SHOWN_CHARS]} ..."


def main() -> None:
    make_server(int(sys.argv[1])).serve_forever()


if __name__ == "__main__":
    main()
