"""Installs what sumaclock needs and is missing: the virtual environment and PostgreSQL with pg_cron.

It runs before anything is installed, so it uses Python's standard library only. Nothing is done twice: a second
call takes a tenth of a second.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from console import Refused, say
from environment import ROOT, RUNTIME_LOCK, TEST_LOCK, install_python_packages, make_venv
from other_postgres import provide_postgres
from system import install_system_packages, missing_packages, wanted_by_tests


def main(arguments: list[str]) -> int:
    for_tests = "--test" in arguments
    other = arguments[arguments.index("--postgres") + 1] if "--postgres" in arguments else None
    lock = TEST_LOCK if for_tests else RUNTIME_LOCK
    try:
        with one_at_a_time():
            if other:
                # Whoever calls reads it, and it is what is looked for from here on.
                os.environ["SUMACLOCK_PG_BIN"] = str(provide_postgres(other))
                print(os.environ["SUMACLOCK_PG_BIN"])  # noqa: T201
            install_system_packages(missing_packages(for_tests), wanted_by_tests() if for_tests else [])
            make_venv()
            install_python_packages(lock)
    except Refused as refusal:
        say(f"\n{refusal}")
        return 1
    except KeyboardInterrupt:
        say("\nInterrupted.")
        return 130
    return 0


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Two installations of one checkout would trip over each other. The lock is on the folder itself: no file."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another bin/up or bin/test is installing here; waiting for it.")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
