"""The server process of one data directory: find it, start it, stop it, and never mistake another for it."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import psycopg
from psycopg.pq import PGconn, Ping

from sumaclock_dagster.db import connect
from sumaclock_dagster.embedded.places import ServerUser
from sumaclock_dagster.model import SumaclockError

POLL_SECONDS = 0.05
LOG_MAX_BYTES = 10_000_000


def find_postmaster(data_dir: Path) -> psutil.Process | None:
    """The running server of `data_dir`. postmaster.pid names a process id, which after a crash or a restart of the
    machine may be anybody's: only a process that works inside `data_dir` is ours."""
    try:
        pid = int((data_dir / "postmaster.pid").read_text().split("\n", 1)[0])
        process = psutil.Process(pid)
        return process if _works_in(process, data_dir) else None
    except (OSError, ValueError, psutil.Error):
        return None


def read_address(data_dir: Path) -> tuple[int, Path]:
    """Port and socket folder of the running server of `data_dir`, from its postmaster.pid."""
    lines = (data_dir / "postmaster.pid").read_text().splitlines()
    return int(lines[3]), Path(lines[4])


def clear_after_crash(data_dir: Path, socket_dir: Path, timeout_seconds: float = 20) -> None:
    """Wait for orphaned backends to notice the crash, then remove the lock files that it left. PostgreSQL itself would
    keep to them when their process id is a zombie's or, after a restart of the machine, anybody's.

    Call it only while the server does not run. Raises SumaclockError when backends stay."""
    pid_file = data_dir / "postmaster.pid"
    if not pid_file.exists():
        return
    deadline = time.monotonic() + timeout_seconds
    while orphans := [process.pid for process in psutil.process_iter() if _works_in(process, data_dir)]:
        if time.monotonic() > deadline:
            raise SumaclockError(
                f"Processes of a crashed PostgreSQL still work in {data_dir}: {', '.join(map(str, orphans))}. "
                "End them, then start again."
            )
        threading.Event().wait(POLL_SECONDS)
    for left_behind in (pid_file, *socket_dir.glob(".s.PGSQL.*")):
        left_behind.unlink(missing_ok=True)


def start_postmaster(
    postgres: str, data_dir: Path, log_file: Path, user: ServerUser, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start the server in a session of its own, so that a Ctrl-C here does not reach it. It writes to `log_file`."""
    if log_file.exists() and log_file.stat().st_size > LOG_MAX_BYTES:
        log_file.replace(log_file.with_suffix(".log.1"))
    with log_file.open("ab") as log:
        return subprocess.Popen(
            [postgres, "-D", str(data_dir)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment,
            start_new_session=True,
            **user.switch,
        )


def is_alive(server: subprocess.Popen[bytes]) -> Callable[[], bool]:
    return lambda: server.poll() is None


def wait_until_accepting(alive: Callable[[], bool], url: str, timeout_seconds: float) -> bool:
    """True when the server accepts a login at `url`; False when it ended instead. Raises SumaclockError on time-out
    (recovery after a crash may take minutes with much to replay), and at once for a login that it refuses."""
    deadline = time.monotonic() + timeout_seconds
    while alive():
        if PGconn.ping(url.encode()) == Ping.OK:
            try:
                connect(url, "sumaclock start").close()
            except psycopg.OperationalError as error:
                raise SumaclockError(f"PostgreSQL runs, but does not let us in: {error}") from error
            return True
        if time.monotonic() > deadline:
            raise SumaclockError(f"PostgreSQL accepts no logins after {timeout_seconds:.0f} s. Look at its log.")
        threading.Event().wait(POLL_SECONDS)
    return False


def stop_postmaster(process: psutil.Process, fast_seconds: float, immediate_seconds: float = 10) -> None:
    """Fast shutdown (SIGINT); after `fast_seconds` immediate shutdown (SIGQUIT), from which the next start recovers.

    Raises SumaclockError when the server outlives both."""
    for kind, seconds in ((signal.SIGINT, fast_seconds), (signal.SIGQUIT, immediate_seconds)):
        try:
            process.send_signal(kind)
            process.wait(seconds)
            return
        except psutil.NoSuchProcess:
            return
        except psutil.TimeoutExpired:
            continue
    raise SumaclockError(f"PostgreSQL (process {process.pid}) does not stop. Look at its log.")


def log_tail(log_file: Path, from_byte: int, lines: int = 15) -> str:
    """The last lines that the server wrote since `from_byte`."""
    try:
        with log_file.open("rb") as log:
            log.seek(from_byte)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def _works_in(process: psutil.Process, data_dir: Path) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == data_dir.resolve()
    except (psutil.Error, OSError):
        return False
