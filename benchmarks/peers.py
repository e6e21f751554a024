"""Ours and the peers in one go, on one PostgreSQL: lines of results, the table and the picture.

    python benchmarks/peers.py FOLDER [--results FILE] [--picture FILE] [--items 10000] [--latencies 300]

FOLDER: a copy of the peers' side-by-side benchmark in which their packages are installed, as its README says; what is
not installed is named and left out. Its driver is run as it is, with ours as one more peer, against a private cluster
in a temporary folder: all defaults but shared_buffers = 256MB. Takes about seven minutes; nothing else should run then.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import draw
from ground import private_cluster
from psycopg import sql

from sumaclock_dagster.db import connect
from sumaclock_dagster.embedded.configuration import SUPERUSER, ClusterFile

HERE = Path(__file__).parent
SETTINGS = {"shared_buffers": "256MB"}
OURS = "ours"
# Where each peer's package lies once it is installed.
PACKAGES = {
    "graphile": "node/node_modules/graphile-worker",
    "pgboss": "node/node_modules/pg-boss",
    "pgqueuer": "venv/lib/python3*/site-packages/pgqueuer",
    "oban": "venv313/lib/python3*/site-packages/oban",
    "awa_qs": "venv/lib/python3*/site-packages/awa",
    "procrastinate": "venv/lib/python3*/site-packages/procrastinate",
    "raw": "venv/lib/python3*/site-packages/psycopg",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, default=HERE / "results" / f"peers-{time.strftime('%F')}.jsonl")
    parser.add_argument("--picture", type=Path, default=HERE.parent / "docs" / "images" / "benchmark.png")
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--latencies", type=int, default=300)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    with private_cluster(SETTINGS) as (_, file):
        lines = run_driver(folder, server_url(file), arguments.items, arguments.latencies)
    arguments.results.write_text(lines, encoding="utf-8")
    draw.draw_file(arguments.results, arguments.picture)


def run_driver(folder: Path, server: str, items: int, latencies: int) -> str:
    """The lines of results. The driver with ours in it lies in the folder while it runs."""
    text = (folder / "driver.py").read_text(encoding="utf-8")
    driver, results = folder / "driver_with_ours.py", folder / "results.jsonl"
    ours = [sys.executable, str(HERE / "ours.py")]
    driver.write_text(text.replace("PEERS = {", f'PEERS = {{\n  "{OURS}": {ours!r},', 1), encoding="utf-8")
    (folder / "out").mkdir(exist_ok=True)
    results.unlink(missing_ok=True)
    try:
        amounts = ["-n", str(items), "-m", str(latencies)]
        command = [sys.executable, driver.name, OURS, *installed(folder), *amounts]
        # The environment of a process is for its user alone, unlike its arguments.
        subprocess.run(command, cwd=folder, env={**os.environ, "BENCH_PG": server}, check=True)
        return results.read_text(encoding="utf-8")
    finally:
        driver.unlink()


def installed(folder: Path) -> list[str]:
    """The peers whose packages are there, in the order of the table."""
    there = [peer for peer, package in PACKAGES.items() if any(folder.glob(package))]
    missing = PACKAGES.keys() - set(there)
    if missing:
        print(f"Not installed in {folder}, so left out: {', '.join(sorted(missing))}.", file=sys.stderr)
    return there


def server_url(file: ClusterFile) -> str:
    """Over TCP as the superuser, as the peers connect, with a password for this run."""
    password = secrets.token_urlsafe(24)
    with connect(file.superuser_url, "bench peers") as conn:
        statement = "alter role {} password {}"
        conn.execute(sql.SQL(statement).format(sql.Identifier(SUPERUSER), sql.Literal(password)))
    return f"postgresql://{quote(SUPERUSER)}:{password}@127.0.0.1:{file.port}"


if __name__ == "__main__":
    main()
