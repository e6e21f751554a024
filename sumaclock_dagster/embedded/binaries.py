"""Find PostgreSQL server programs that come with pg_cron. Looks only; installing is somebody else's duty."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sumaclock_dagster.model import SumaclockError

PROGRAMS = ("postgres", "initdb", "psql")
# Debian, Ubuntu and PGDG's apt; PGDG's yum; Homebrew on Apple silicon and Intel, its formulae and Linux.
PATTERNS = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
    "home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
)
BREW_FORMULAE = ("postgresql@17", "pg_cron")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with postgres, initdb and psql whose server can load pg_cron."""

    bin_dir: Path
    major: int

    def program(self, name: str) -> str:
        return str(self.bin_dir / name)


def find_binaries(
    preferred: Path | None = None, *, major: int | None = None, root: Path = Path("/"), path: str | None = None
) -> Binaries:
    """The newest PostgreSQL with pg_cron, or of version `major` where data of it exists already.

    preferred: a bin folder that the user named (SUMACLOCK_PG_BIN); then no other is taken.
    root: where the usual places are looked for; path: like the environment's PATH, searched for pg_config.
    Raises SumaclockError that names what to install."""
    folders = [preferred] if preferred else [*_usual_places(root), *_by_pg_config(path)]
    servers = [server for server in map(_server, _distinct(folders)) if server is not None]
    usable = [server for server in servers if _has_pg_cron(server) and major in (None, server.major)]
    if usable:
        return max(usable, key=lambda server: server.major)
    raise SumaclockError(_what_is_missing(preferred, major, servers))


def packages_to_install(major: int | None = None) -> tuple[str, ...]:
    """What brings PostgreSQL with pg_cron here: apt's packages, or Homebrew's formulae on macOS. Without `major`, apt's
    names hold NN, for the version that the distribution has."""
    if platform.system() == "Darwin":
        return BREW_FORMULAE if major is None else (f"postgresql@{major}", "pg_cron")
    return (f"postgresql-{major or 'NN'}", f"postgresql-{major or 'NN'}-cron")


def _usual_places(root: Path) -> Iterator[Path]:
    for pattern in PATTERNS:
        yield from root.glob(pattern)


def _by_pg_config(path: str | None) -> Iterator[Path]:
    pg_config = shutil.which("pg_config", path=path)
    if pg_config:
        found = _output(pg_config, "--bindir")
        yield Path(found) if found else Path(pg_config).resolve().parent


def _distinct(folders: Iterable[Path]) -> list[Path]:
    seen: dict[Path, Path] = {}
    for folder in folders:
        seen.setdefault(folder.resolve(), folder)
    return list(seen.values())


def _server(bin_dir: Path) -> Binaries | None:
    if not all(os.access(bin_dir / name, os.X_OK) for name in PROGRAMS):
        return None
    version = re.search(r"PostgreSQL\) (\d+)", _output(str(bin_dir / "postgres"), "--version"))
    return Binaries(bin_dir, int(version[1])) if version else None


def _has_pg_cron(server: Binaries) -> bool:
    folders = _asked_folders(server) or _guessed_folders(server)
    libraries, share = folders
    library = any((libraries / f"pg_cron.{end}").exists() for end in ("so", "dylib"))
    return library and (share / "extension" / "pg_cron.control").exists()


def _asked_folders(server: Binaries) -> tuple[Path, Path] | None:
    pg_config = server.bin_dir / "pg_config"
    if not os.access(pg_config, os.X_OK):
        return None
    libraries, share = _output(str(pg_config), "--pkglibdir"), _output(str(pg_config), "--sharedir")
    return (Path(libraries), Path(share)) if libraries and share else None


def _guessed_folders(server: Binaries) -> tuple[Path, Path]:
    """Debian keeps pg_config in a development package, so a server may stand there without it."""
    home = server.bin_dir.resolve().parent
    shares = (home.parents[2] / "share" / "postgresql" / home.name, home / "share", home / "share" / "postgresql")
    share = next((folder for folder in shares if (folder / "extension").is_dir()), shares[0])
    libraries = next(
        (folder for folder in (home / "lib" / "postgresql", home / "lib") if folder.is_dir()), home / "lib"
    )
    return libraries, share


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _what_is_missing(preferred: Path | None, major: int | None, servers: list[Binaries]) -> str:
    if preferred and not servers:
        return (
            f"SUMACLOCK_PG_BIN names {preferred}, but there is no PostgreSQL server with {', '.join(PROGRAMS)} in it."
        )
    where = f" in {preferred}" if preferred else ""
    wanted = f"PostgreSQL {major}" if major else "PostgreSQL"
    matching = sorted((server for server in servers if major in (None, server.major)), key=lambda server: server.major)
    fitting = matching[-1].major if matching else major
    needed = packages_to_install(fitting)
    if matching:
        missing = f"{wanted} is there{where} ({matching[-1].bin_dir}), but without pg_cron"
        needed = needed[1:]
    else:
        missing = f"{wanted} with pg_cron is not installed{where}"
    if platform.system() == "Darwin":
        return f"{missing}. Install it: brew install {' '.join(needed)}"
    hint = (
        "" if fitting else " (NN is your distribution's version: 15 on Debian 12, 17 on Debian 13, 16 on Ubuntu 24.04)"
    )
    return f"{missing}. Install it: sudo apt-get install {' '.join(needed)}{hint}"
