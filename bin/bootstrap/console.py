"""Running commands while showing that something happens."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import IO


class Refused(Exception):
    """What is missing and how to get it, in sentences."""


def run(what: str, command: list[str], *, advice: str = "", count: tuple[str, int] | None = None) -> None:
    """Run a command and show that it goes on. Raises Refused with its last lines when it fails."""
    started = time.monotonic()
    environment = os.environ | {"PIP_ROOT_USER_ACTION": "ignore", "PYTHONUNBUFFERED": "1"}
    live = sys.stderr.isatty()
    if not live:
        say(f"{what} ...")
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        ) as process:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.5)
                    break
                if live:
                    show(f"{what}{progress(output, count)} ({time.monotonic() - started:.0f} s)")
        seconds = time.monotonic() - started
        if live:
            show(f"{what}: done ({seconds:.0f} s)\n")
        else:
            say(f"{what}: done ({seconds:.0f} s)") if process.returncode == 0 else None
        if process.returncode != 0:
            raise Refused("\n".join([f"{what} failed:", *last_lines(output), advice]).rstrip())


def run_quiet(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"{' '.join(command[:4])} failed: {done.stderr.strip()}")


def progress(output: IO[bytes], count: tuple[str, int] | None) -> str:
    if count is None:
        return ""
    word, total = count
    done = sum(line.startswith(word) for line in text_of(output).splitlines())
    return f": {min(done, total)} of {total}"


def last_lines(output: IO[bytes]) -> list[str]:
    return [f"    {line}" for line in text_of(output).splitlines()[-15:]]


def text_of(output: IO[bytes]) -> str:
    # pread leaves the offset alone, which the child process shares.
    return os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0).decode("utf-8", "replace")


def show(line: str) -> None:
    width = shutil.get_terminal_size().columns - 1
    end = "\n" if line.endswith("\n") else ""
    sys.stderr.write(f"\r\x1b[K{ascii_safe(line.rstrip())[:width]}{end}")
    sys.stderr.flush()


def say(line: str) -> None:
    sys.stderr.write(ascii_safe(line) + "\n")
    sys.stderr.flush()


def ascii_safe(text: str) -> str:
    """What apt or pip print may hold letters that this terminal's encoding has not."""
    encoding = sys.stderr.encoding or "ascii"
    return text.encode(encoding, "replace").decode(encoding)
