"""PostgreSQL of another Debian release with its pg_cron, in a folder of this checkout, for `bin/test --postgres NN`.

mmdebstrap makes a root of that release with the ordinary packages: apt fetches them and verifies their signatures, and
nothing of it touches the machine. PostgreSQL then runs inside, see debian_root.py.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from console import Refused, run
from debian_root import write_programs
from environment import ROOT
from system import apt_install, root_prefix

RELEASES = {"15": "bookworm", "17": "trixie"}
MIRROR = "SUMACLOCK_DEBIAN_MIRROR"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Debian's packages of the programs that are needed; the second list by those who are not root.
NEEDED = {"apt-get": "apt", "mmdebstrap": "mmdebstrap", "tar": "tar", "unshare": "util-linux"}
NEEDED_BY_USERS = {"newuidmap": "uidmap"}
SYSTEM_PLACE = Path("/var/lib/sumaclock/postgres")
# Large, and no test looks at them.
LEFT_OUT = ("usr/share/doc/*", "usr/share/man/*", "usr/share/locale/*", "usr/lib/postgresql/*/lib/bitcode/*")
NO_MAIN_CLUSTER = 'echo "create_main_cluster = false" >"$1/etc/postgresql-common/createcluster.d/tests.conf"'


def provide_postgres(major: str) -> Path:
    """The folder with the programs of PostgreSQL `major`; its root is made the first time, and then there.

    Raises Refused that says what is missing."""
    release = _release(major)
    home = _place() / major
    root = home / "debian"
    os.umask(0o022)
    if not root.exists():
        _provide_tools(major)
        _make_root(home, root, major, release)
    postgres = f"/usr/lib/postgresql/{major}"
    write_programs(root, f"{postgres}/bin", home / "bin", ROOT)
    # Where others look for its libraries and extensions.
    for link, target in ((home / "lib", f"{postgres}/lib"), (home / "share", f"/usr/share/postgresql/{major}")):
        with suppress(FileExistsError):
            link.symlink_to(f"debian{target}")
    _try(home / "bin" / "postgres")
    return home / "bin"


def _make_root(home: Path, root: Path, major: str, release: str) -> None:
    home.mkdir(parents=True, exist_ok=True)
    archive, unfinished = home / "debian.tar", home / "debian.new"
    mirror = _mirror()
    command = [
        "mmdebstrap",
        "--variant=minbase",
        f"--keyring={KEYRING}",
        f"--include=postgresql-{major},postgresql-{major}-cron,libfaketime",
        *(f"--dpkgopt=path-exclude=/{path}" for path in LEFT_OUT),
        "--dpkgopt=force-unsafe-io",
        f'--essential-hook=mkdir -p "$1/etc/postgresql-common/createcluster.d" && {NO_MAIN_CLUSTER}',
        release,
        str(archive),
        mirror,
    ]
    advice = f"mmdebstrap failed. Is the network there, and does {mirror} have Debian's release {release}?"
    run(f"Making a root of Debian {release} with PostgreSQL {major} and pg_cron", command, advice=advice)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    # Everything is the caller's own, and nothing brings rights.
    unpack = ["tar", "-x", "-f", str(archive), "-C", str(unfinished), "--no-same-owner", "--no-same-permissions"]
    run("Unpacking it", [*unpack, "--exclude=./dev/*"])
    archive.unlink()
    unfinished.rename(root)


def _try(program: Path) -> None:
    """Run it as tests will: not as root."""
    switch = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    done = subprocess.run([str(program), "--version"], cwd="/", capture_output=True, text=True, check=False, **switch)
    if done.returncode != 0:
        raise Refused(
            f"PostgreSQL does not run inside {program.parent.parent / 'debian'}: {done.stderr.strip()}\n"
            "Users must be allowed to make namespaces. See sysctl user.max_user_namespaces and, where there are such, "
            "kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0."
        )


def _place() -> Path:
    """Below the checkout; where root works in a folder that others may not enter, such as PostgreSQL's user, as whom
    root has to run it, then elsewhere."""
    folders = [ROOT, *ROOT.parents]
    if os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in folders):
        return ROOT / ".postgres"
    return SYSTEM_PLACE / hashlib.sha256(os.fsencode(ROOT)).hexdigest()[:12]


def _release(major: str) -> str:
    if major in RELEASES:
        return RELEASES[major]
    known = ", ".join(f"{number} ({name})" for number, name in RELEASES.items())
    raise Refused(f"No release of Debian has PostgreSQL {major}. bin/test --postgres knows {known}.")


def _missing_tools() -> list[str]:
    needed = NEEDED if os.geteuid() == 0 else NEEDED | NEEDED_BY_USERS
    missing = [package for program, package in needed.items() if not shutil.which(program)]
    return missing if KEYRING.exists() else [*missing, "debian-archive-keyring"]


def _provide_tools(major: str) -> None:
    missing = _missing_tools()
    if not missing:
        return
    become_root = root_prefix() if shutil.which("apt-get") else None
    if become_root is None:
        raise Refused(
            f"PostgreSQL {major} is to be taken from Debian, and for that these packages are missing here: "
            f"{', '.join(missing)}. On Debian and Ubuntu: apt-get install {' '.join(missing)}. Elsewhere, install "
            f"PostgreSQL {major} with pg_cron yourself and name its programs' folder: "
            f"SUMACLOCK_PG_BIN=… bin/test, without --postgres."
        )
    run("Updating the list of packages", [*become_root, "apt-get", "update"])
    apt_install(become_root, missing)


def _mirror() -> str:
    """The Debian mirror that the environment names, or the one that this machine uses, where it is a Debian."""
    if named := os.environ.get(MIRROR):
        return named.rstrip("/")
    command = ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    found = [(label, uri.rstrip("/")) for label, _, uri in (line.partition(" ") for line in listed)]
    # A list that was never fetched has no label yet.
    mirrors = [uri for label, uri in found if label == "Debian"] or [uri for _, uri in found if uri.endswith("/debian")]
    if not mirrors:
        raise Refused(f"This machine's apt knows no mirror of Debian. Set {MIRROR} to one: http://host/debian.")
    return mirrors[0]
