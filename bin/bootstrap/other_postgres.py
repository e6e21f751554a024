"""PostgreSQL of another Debian release with its pg_cron, in a folder of this checkout, for `bin/test --postgres NN`.

apt fetches and verifies the packages of that release, as it does for the machine, but with lists and a status of their
own; dpkg unpacks them below .postgres/NN/root. Nothing of it touches the machine or needs rights. The programs there
are told to use the root's own loader and libraries, so that they run from outside, as any user, like installed ones.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from console import Refused, run
from environment import ROOT

RELEASES = {"15": "bookworm", "17": "trixie"}
MIRROR = "SUMACLOCK_DEBIAN_MIRROR"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
NEEDED = {"apt-get": "apt", "dpkg-deb": "dpkg", "tar": "tar"}
SYSTEM_PLACE = Path("/var/lib/sumaclock/postgres")
# Large, and no test looks at them.
LEFT_OUT = ("./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/lib/postgresql/*/lib/bitcode")


def provide_postgres(major: str) -> Path:
    """The folder with the programs of PostgreSQL `major`; fetched the first time, and then there.

    Raises Refused that says what is missing."""
    release = _release(major)
    home = _place() / major
    bin_dir = home / "root" / "usr" / "lib" / "postgresql" / major / "bin"
    # Programs hold the place of their libraries, so a checkout that was moved needs them anew.
    made_for = home / "made-for"
    if made_for.exists() and made_for.read_text("utf-8") == str(home):
        return bin_dir
    _check_tools(major)
    shutil.rmtree(home, ignore_errors=True)
    os.umask(0o022)
    for folder in ("root", "state/lists/partial", "cache/archives/partial"):
        (home / folder).mkdir(parents=True)
    apt = _apt(home, release)
    advice = f"apt-get failed. Is the network there, and does {_mirror()} have Debian's release {release}?"
    packages = [f"postgresql-{major}", f"postgresql-{major}-cron", "patchelf"]
    run(f"Reading the list of Debian {release}'s packages", [*apt, "update", "--error-on=any"], advice=advice)
    fetch = [*apt, "install", "-y", "--no-install-recommends", "--download-only", *packages]
    run(f"Fetching PostgreSQL {major} with pg_cron from Debian {release}", fetch, advice=advice)
    archives = sorted(map(str, (home / "cache" / "archives").glob("*.deb")))
    run("Unpacking it", ["sh", "-ec", UNPACK, "sh", str(home / "root"), *archives])
    run("Pointing its programs to its libraries", ["sh", "-ec", POINT, "sh", str(home / "root"), str(bin_dir)])
    for folder in ("state", "cache"):
        shutil.rmtree(home / folder)
    made_for.write_text(str(home), "utf-8")
    return bin_dir


UNPACK = f"""
root=$1; shift
for archive in "$@"; do
    dpkg-deb --fsys-tarfile "$archive" >"$root/../data.tar"
    tar -x -f "$root/../data.tar" -C "$root" --no-same-owner {" ".join(f"--exclude='{path}'" for path in LEFT_OUT)}
done
rm "$root/../data.tar"
"""
POINT = """
libraries=$(echo "$1"/usr/lib/*-linux-gnu*)
for loader in "$1"/usr/lib64/ld-linux-* "$1"/usr/lib/ld-linux-* "$libraries"/ld-linux-*; do
    [ ! -e "$loader" ] || break
done
for program in "$2"/*; do
    # Programs that are scripts stay as they are.
    head -c 4 "$program" | grep -q ELF || continue
    "$loader" --library-path "$libraries" "$1/usr/bin/patchelf" \\
        --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$program"
done
"$2/postgres" --version
"""


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


def _check_tools(major: str) -> None:
    missing = [package for program, package in NEEDED.items() if not shutil.which(program)]
    if not KEYRING.exists():
        missing.append("debian-archive-keyring")
    if missing:
        raise Refused(
            f"PostgreSQL {major} is to be fetched from Debian, and for that these packages are missing here: "
            f"{', '.join(missing)}. On Debian and Ubuntu: apt-get install {' '.join(missing)}. Elsewhere, install "
            f"PostgreSQL {major} with pg_cron yourself and name its programs' folder: "
            f"SUMACLOCK_PG_BIN=… bin/test, without --postgres."
        )


def _apt(home: Path, release: str) -> list[str]:
    """apt-get with the machine's settings (proxies, say), but for a machine on which nothing is installed."""
    (home / "state" / "status").touch()
    sources = home / "state" / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] {_mirror()} {release} main\n", "utf-8")
    own = {
        "Dir::State": home / "state",
        "Dir::State::status": home / "state" / "status",
        "Dir::Cache": home / "cache",
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Acquire::Languages": "none",
        # As root, apt would give up its rights for a user who may not write here.
        "APT::Sandbox::User": "",
        "APT::Default-Release": "",
    }
    return ["apt-get", *(part for name, value in own.items() for part in ("-o", f"{name}={value}"))]


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
