"""The UI's port, held from its choice on: between that and the webserver's start lie seconds, in which another
`sumaclock up` would choose the same."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sumaclock_dagster.model import SumaclockError

HOST = "127.0.0.1"
FIRST_PORT, PORTS = 3000, 100


@contextmanager
def hold_port(wanted: int | None) -> Iterator[int]:
    """`wanted`, or else the first free one from 3000 on, which no other `sumaclock up` of this user gets meanwhile.
    Raises SumaclockError when it is taken."""
    for port in [wanted] if wanted is not None else range(FIRST_PORT, FIRST_PORT + PORTS):
        lock = os.open(_folder() / str(port), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            if _locked(lock) and _is_free(port):
                yield port
                return
        finally:
            os.close(lock)
    if wanted is not None:
        raise SumaclockError(f"Port {wanted} on {HOST} is taken. Choose another one with --port.")
    raise SumaclockError(f"No port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} is free. Choose one with --port.")


def any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _folder() -> Path:
    """A folder of this user's alone, of which nobody else can take the locks."""
    folder = Path(tempfile.gettempdir()) / f"sumaclock-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise SumaclockError(f"{folder} belongs to somebody else. Remove it, or set TMPDIR to a folder of your own.")
    return folder


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a connection that still lingers from an ended one does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
