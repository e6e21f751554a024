"""Programs that run inside a Debian root, as whoever calls them, as if they stood outside.

What is called is a script outside. It becomes the program, so that signals reach it under the id that it was started
with, in a mount namespace of its own, in which the machine's folders for data and sockets stand where they always do.
Users make that namespace within a user namespace that has nobody else in it; root needs none.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from contextlib import suppress
from pathlib import Path
from shlex import quote

# What the root has itself. All other folders of the machine are seen inside.
OWN_FOLDERS = {"usr", "etc", "boot", "lost+found", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "sys"}
# Where the machine hangs for a moment.
MACHINE = ".machine"
# It would tell folders of the root to those who look for them outside.
LEFT_OUT = {"pg_config"}
# Whoever has no id in the namespace. PostgreSQL's socket lets nobody through but its owner and root, so that is root.
NO_ID = 65534


def write_programs(root: Path, inner: str, folder: Path, checkout: Path) -> None:
    """Make in `folder` a script for each program in the folder `inner` of `root`.

    checkout: is seen inside, wherever it stands. To be called each time: users come and folders are moved."""
    shared = _shared_folders(checkout)
    for mount_point in (MACHINE, *shared):
        (root / mount_point.lstrip("/")).mkdir(parents=True, exist_ok=True)
    _write(root / "etc" / "passwd", _users())
    folder.mkdir(exist_ok=True)
    enter, call = folder.parent / "enter", folder.parent / "call"
    # One that this user may not see is no loss; one that is missed is told by who misses it.
    mounts = "\n".join(f"mount --rbind {quote(name)} {quote(f'.{name}')} 2>/dev/null || :" for name in shared)
    _write(enter, ENTER.format(root=quote(str(root)), mounts=mounts, machine=MACHINE))
    _write(call, CALL.format(enter=quote(str(enter)), inner=quote(inner)), 0o755)
    for program in os.listdir(root / inner.lstrip("/")):
        if program not in LEFT_OUT:
            with suppress(FileExistsError):
                (folder / program).symlink_to("../call")


CALL = """#!/bin/sh
# Written by bin/test --postgres: becomes the program of this name inside the Debian root beside it.
namespaces=--mount
user=$(/usr/bin/id -u):$(/usr/bin/id -g)
[ "${{user%:*}}" -eq 0 ] || namespaces="--mount --user --map-root-user"
exec /usr/bin/unshare $namespaces /bin/sh {enter} "$user" {inner}/"${{0##*/}}" "$@"
"""
ENTER = """# Written by bin/test --postgres, and run with mounts of its own.
set -eu
here=$(pwd)
path=$PATH
PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount --rbind {root} {root}
cd {root}
{mounts}
pivot_root . {machine}
umount --lazy /{machine}
cd "$here" 2>/dev/null || cd /
user=$1
shift
# Only mount and umount had to take us for root.
[ "${{user%:*}}" -eq 0 ] || set -- unshare --user --map-user="${{user%:*}}" --map-group="${{user#*:}}" "$@"
exec env PATH="$path" "$@"
"""


def _shared_folders(checkout: Path) -> list[str]:
    folders = {
        entry.path
        for entry in os.scandir("/")
        if entry.is_dir(follow_symlinks=False) and entry.name not in OWN_FOLDERS and entry.name.isprintable()
    }
    wanted = {Path(name).resolve() for name in (tempfile.gettempdir(), checkout)}
    return sorted(folders | {str(path) for path in wanted if path.parts[1] in OWN_FOLDERS and path.is_dir()})


def _users() -> str:
    """The machine's users: PostgreSQL asks inside for the names of those who connect."""
    entries = pwd.getpwall()
    with suppress(KeyError):
        # Where users come from a network, the list may lack them.
        entries.append(pwd.getpwuid(os.geteuid()))
    names = {entry.pw_name: (entry.pw_uid, entry.pw_gid) for entry in entries if entry.pw_uid != NO_ID}
    lines = [f"{name}:x:{uid}:{gid}::/:/bin/sh" for name, (uid, gid) in [*names.items(), ("root", (NO_ID, NO_ID))]]
    return "\n".join(lines) + "\n"


def _write(file: Path, text: str, mode: int = 0o644) -> None:
    """At once, and only what is new: tests may be running the programs."""
    if file.exists() and file.read_text("utf-8") == text:
        return
    new = file.with_name(f"{file.name}.new")
    new.write_text(text, "utf-8")
    new.chmod(mode)
    new.replace(file)
