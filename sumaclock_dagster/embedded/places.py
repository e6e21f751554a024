"""Where the private cluster lives and as whom its server runs."""

from __future__ import annotations

import hashlib
import os
import pwd
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sumaclock_dagster.model import SumaclockError

# 107 bytes on Linux and 103 on macOS hold a socket's path; ours ends in "/.s.PGSQL.65535".
SOCKET_PATH_BYTES = 100
SOCKET_NAME = ".s.PGSQL.65535"
SYSTEM_HOME = Path("/var/lib/sumaclock")
Say = Callable[[str], None]


def silent(_text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class ServerUser:
    """The operating system's user that the server runs as. `switch`: keyword arguments for subprocess."""

    name: str
    uid: int
    gid: int

    @property
    def is_other(self) -> bool:
        return self.uid != os.geteuid()

    @property
    def switch(self) -> dict[str, Any]:
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.is_other else {}

    def own(self, path: Path) -> None:
        if self.is_other:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


@dataclass(frozen=True, slots=True)
class Places:
    """home: cluster.json, log and lock, ours. data_dir and socket_dir: the server's, closed to everybody else."""

    home: Path
    data_dir: Path
    socket_dir: Path

    @property
    def log_file(self) -> Path:
        return self.home / "postgres.log"


def server_user(data_dir: Path | None = None) -> ServerUser:
    """Whoever owns `data_dir`; before it exists the invoking user, or `postgres` for root, whom PostgreSQL refuses.

    Raises SumaclockError without such a user, and for somebody else's data."""
    uid = os.geteuid()
    owner = data_dir.stat().st_uid if data_dir and data_dir.exists() else None
    if owner not in (None, uid) and uid != 0:
        raise SumaclockError(
            f"The cluster in {data_dir} belongs to user {user_name(owner)}. Run as that user, or choose another "
            "SUMACLOCK_HOME."
        )
    if uid != 0:
        return ServerUser(user_name(uid), uid, os.getegid())
    try:
        entry = pwd.getpwuid(owner) if owner else pwd.getpwnam("postgres")
    except KeyError:
        raise SumaclockError(
            "PostgreSQL does not run as root, and this machine has no user 'postgres' to run it as. Run as another "
            "user, or make that one: useradd --system --no-create-home postgres"
        ) from None
    return ServerUser(entry.pw_name, entry.pw_uid, entry.pw_gid)


def user_name(uid: int) -> str:
    """The user's name in the operating system; its number where it has none, as in some containers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def choose_places(home: Path, say: Say) -> tuple[Places, ServerUser]:
    """Make `home` and decide where data and sockets go and whose they are: below `home`, if the server's user can get
    there, or else below /var/lib/sumaclock; sockets move to a short private folder where their path would be too long.

    Raises SumaclockError."""
    home = home.absolute()
    if not home.exists():
        home.mkdir(parents=True)
        # The server's user has to pass through, whatever the umask; what must be private below it has its own mode.
        home.chmod(0o711)
    base, user = _base(home, say)
    socket_dir = base / "sockets"
    if not _fit_for_sockets(socket_dir):
        socket_dir = Path(tempfile.gettempdir()) / f"sumaclock-{user.uid}-{_short_hash(home)}"
        say(f"Sockets are in {socket_dir}: their path under {base} would be too long, or hold a character they can't.")
    return Places(home, base / "data", socket_dir), user


def make_private(folder: Path, user: ServerUser) -> None:
    """Make `folder`, if need be, the server's own and closed to others. SumaclockError if it is somebody else's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.lstat()
    if folder.is_symlink() or state.st_uid not in (os.geteuid(), user.uid):
        raise SumaclockError(
            f"{folder} belongs to {user_name(state.st_uid)}. Remove it, or choose another SUMACLOCK_HOME."
        )
    user.own(folder)
    folder.chmod(0o700)


def _base(home: Path, say: Say) -> tuple[Path, ServerUser]:
    elsewhere = SYSTEM_HOME / _short_hash(home)
    for base in (home, elsewhere):
        if (base / "data").exists():
            return base, server_user(base / "data")
    user = server_user(home / "data")
    if not user.is_other or _can_enter(home, user):
        return home, user
    SYSTEM_HOME.mkdir(mode=0o755, parents=True, exist_ok=True)
    elsewhere.mkdir(mode=0o711, exist_ok=True)
    say(f"Data is in {elsewhere}: user {user.name}, who runs PostgreSQL, may not enter {home}.")
    return elsewhere, user


def _can_enter(folder: Path, user: ServerUser) -> bool:
    # Asked from inside that user's process: modes, ACLs and mounts all count.
    tried = subprocess.run(
        ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder)],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        **user.switch,
    )
    return tried.returncode == 0


def _fit_for_sockets(folder: Path) -> bool:
    # libpq splits a host at commas.
    text = str(folder)
    return len(os.fsencode(folder / SOCKET_NAME)) < SOCKET_PATH_BYTES and text.isprintable() and "," not in text


def _short_hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
