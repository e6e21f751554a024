"""Runs several commands at the same time, each given as one argument, and shows what each said once it has ended.

Exits with 1 if one failed. For stages of tests that mostly wait. The commands get no shell of their own in the
background, which would make what they start deaf to SIGINT.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import IO


def run(command: str, log: IO[bytes]) -> tuple[str, int, IO[bytes]]:
    """Standard output and error go to `log`."""
    code = subprocess.run(shlex.split(command), stdout=log, stderr=subprocess.STDOUT).returncode
    return command, code, log


def main() -> int:
    failed = []
    with ThreadPoolExecutor(len(sys.argv)) as pool:
        print(f"== At the same time: {'; '.join(sys.argv[1:])}", flush=True)
        logs = [pool.submit(run, command, tempfile.TemporaryFile()) for command in sys.argv[1:]]
        for ended in as_completed(logs):
            command, code, log = ended.result()
            with log:
                log.seek(0)
                print(f"== {command} ended with {code}", flush=True)
                sys.stdout.buffer.write(log.read())
                sys.stdout.flush()
            failed += [command] if code else []
    for command in failed:
        print(f"== {command} failed, see above")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
