"""The demo's stand-in for core-api, as a process and as people see it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from sumaclock_dagster.embedded.follow import AT_ONCE, Follow
from sumaclock_dagster.embedded.receiver import BODY_MAX_BYTES, GOT, line
from tests.waiting import until


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Its URL and its log."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = tmp_path / "receiver.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "sumaclock_dagster.embedded.receiver", str(port)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def listens() -> bool:
        assert process.poll() is None
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    try:
        until(listens, 10, "the receiver")
        yield f"http://127.0.0.1:{port}", log
    finally:
        process.kill()
        process.wait()


def test_it_takes_everything_tells_what_came_and_never_the_token(receiver: tuple[str, Path]) -> None:
    url, log = receiver
    follow = Follow(log, GOT)
    headers = {"Idempotency-Key": "k1", "Authorization": "Bearer t0ken"}
    with httpx.Client(trust_env=False, base_url=url, headers=headers) as client:
        assert client.post("/reminders", json={"text": "a"}).json() == {"received": True, "known": False}
        assert client.post("/reminders", json={"text": "a"}).json() == {"received": True, "known": True}
        assert client.delete("/x", headers={"Idempotency-Key": "k2"}).status_code == 200
        assert client.post("/x", content=b"x" * (BODY_MAX_BYTES + 1)).status_code == 413
    told = until(lambda: follow.look(), 5, "lines")
    assert told == [
        'core-api got POST /reminders, key k1: {"text":"a"}',
        'core-api got POST /reminders, key k1 (again, so a receiver that honours the key does nothing): {"text":"a"}',
        "core-api got DELETE /x, key k2: no body",
    ]
    assert "t0ken" not in log.read_text()
    assert follow.look() == []


def test_a_line_commands_no_terminal_and_is_not_long() -> None:
    text = line("POST", "/\x1b[2J", "k\n", b"\x1b]0;title\x07\xff\x00" + b"y" * 5000, True)
    assert text.isprintable()
    assert len(text) < 320


def test_following_a_log_that_is_cut_short_and_busy(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    follow = Follow(log, GOT)
    assert follow.look() == []
    log.write_text(f"--- started\n{GOT}1\nnoise\n{GOT}2")
    assert follow.look() == [f"{GOT}1"]
    with log.open("a") as out:
        out.write(" and more\n")
    assert follow.look() == [f"{GOT}2 and more"]
    log.write_text("".join(f"{GOT}{number}\n" for number in range(3)))
    assert follow.look() == [f"{GOT}{number}" for number in range(3)]
    with log.open("a") as out:
        out.writelines(f"{GOT}{number}\n" for number in range(100))
    told = follow.look()
    assert len(told) == AT_ONCE + 1
    assert told[-1] == f"{GOT}{100 - AT_ONCE} more, all in {log}"
