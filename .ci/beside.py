"""Runs several commands at the same time, each given as one argument, and shows what each said once it has ended.

For stages of tests that mostly wait. Exits with 1 if one failed. No shell starts them in the background, which would
make what they start deaf to SIGINT.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed


def run(command: str) -> tuple[str, subprocess.CompletedProcess[bytes]]:
    return command, subprocess.run(shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def main() -> int:
    commands = sys.argv[1:]
    print(f"== At the same time: {'; '.join(commands)}", flush=True)
    failed = []
    with ThreadPoolExecutor(len(commands)) as pool:
        for ended in as_completed([pool.submit(run, command) for command in commands]):
            command, result = ended.result()
            print(f"== {command} ended with {result.returncode}", flush=True)
            sys.stdout.buffer.write(result.stdout)
            sys.stdout.flush()
            failed += [command] if result.returncode else []
    for command in failed:
        print(f"== {command} failed, see above", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
