"""Make a data directory, and what only a superuser can make in its databases."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sumaclock_dagster.embedded.binaries import Binaries
from sumaclock_dagster.embedded.configuration import INCLUDE, SUPERUSER
from sumaclock_dagster.embedded.places import ServerUser, make_private
from sumaclock_dagster.migrate import sql_file
from sumaclock_dagster.model import SumaclockError


def server_environment() -> dict[str, str]:
    """The environment for PostgreSQL's programs: none of the caller's PG* variables (they name other servers), nor
    secrets, and one language for messages."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C", "PGCLIENTENCODING": "UTF8"}


def data_version(data_dir: Path) -> int | None:
    """The major version whose data is in `data_dir`, or None. Raises SumaclockError when it can't be read."""
    try:
        return int((data_dir / "PG_VERSION").read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SumaclockError(f"Cannot read the data directory {data_dir}: {error}") from error


def create_data_dir(binaries: Binaries, data_dir: Path, user: ServerUser, *, sync: bool) -> None:
    """Run initdb. Made beside its place and then moved there: an interrupted initdb never looks like a cluster."""
    unfinished = data_dir.with_name("data.new")
    _initdb(binaries, unfinished, user, sync)
    with (unfinished / "postgresql.conf").open("a") as main_file:
        main_file.write(INCLUDE)
    unfinished.rename(data_dir)


def run_first_boot(binaries: Binaries, superuser_url: str, variables: Mapping[str, str] | None = None) -> None:
    """Run sql/first_boot.sql; `variables` replace its defaults. Raises SumaclockError with psql's words."""
    assigned = [f"--set={name}={value}" for name, value in (variables or {}).items()]
    command = [
        binaries.program("psql"),
        "-X",
        "-q",
        "-d",
        superuser_url,
        *assigned,
        "-f",
        str(sql_file("first_boot.sql")),
    ]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=server_environment(), check=False
    )
    if done.returncode != 0:
        raise SumaclockError(f"sql/first_boot.sql failed:\n{done.stderr.strip()}")


def _initdb(binaries: Binaries, data_dir: Path, user: ServerUser, sync: bool) -> None:
    failed = ""
    for locale in ("C.UTF-8", "C"):
        if data_dir.exists():
            shutil.rmtree(data_dir)
        make_private(data_dir, user)
        done = subprocess.run(
            [
                binaries.program("initdb"),
                f"--pgdata={data_dir}",
                f"--username={SUPERUSER}",
                "--encoding=UTF8",
                f"--locale={locale}",
                "--data-checksums",
                "--auth=reject",
                "--no-instructions",
                *([] if sync else ["--no-sync"]),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",
            env=server_environment(),
            check=False,
            **user.switch,
        )
        if done.returncode == 0:
            return
        failed = done.stderr.strip()
    raise SumaclockError(f"initdb failed in {data_dir}:\n{failed}")
