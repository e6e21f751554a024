"""What the machine itself must have: Python's venv module, PostgreSQL with pg_cron, and what some tests want."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from console import Refused, run, run_quiet, say
from environment import ROOT, venv_works

# Debian packages that some tests want, and the programs that show that they are here. The tests skip without them.
WANTED_BY_TESTS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "faketime": ("faketime",),
    "openssl": ("openssl",),
    "pgbouncer": ("pgbouncer", "/usr/sbin/pgbouncer"),
}
CREATECLUSTER = Path("/etc/postgresql-common/createcluster.d")
POLICY = Path("/usr/sbin/policy-rc.d")


def missing_packages(for_tests: bool) -> list[str]:
    """What is missing, by kind: "venv", "postgresql"."""
    missing = []
    if not venv_works() and importlib.util.find_spec("ensurepip") is None:
        missing.append("venv")
    uses_own_server = bool(os.environ.get("SUMACLOCK_DATABASE_URL")) and not for_tests
    if not uses_own_server and not postgresql_found():
        missing.append("postgresql")
    return missing


def wanted_by_tests() -> list[str]:
    """Debian packages that some tests want and that are not here."""
    return [name for name, programs in WANTED_BY_TESTS.items() if not any(map(shutil.which, programs))]


def postgresql_found() -> bool:
    """Asks the module that `sumaclock up` asks too; it needs no installed package."""
    sys.path.insert(0, str(ROOT))
    from sumaclock_dagster.embedded.binaries import find_binaries
    from sumaclock_dagster.model import SumaclockError

    named = os.environ.get("SUMACLOCK_PG_BIN")
    try:
        find_binaries(Path(named) if named else None)
    except SumaclockError as error:
        if named:
            raise Refused(str(error)) from error
        return False
    return True


def install_system_packages(missing: list[str], optional: list[str]) -> None:
    """Install with apt what is `missing`, and the `optional` packages where that is possible.

    Raises Refused with the exact packages where there is no apt or no right to use it.
    """
    if not missing and not optional:
        return
    if not shutil.which("apt-get"):
        if missing:
            raise Refused(remedy_without_apt(missing))
        say(without(optional))
        return
    become_root = root_prefix()
    if become_root is None:
        if missing:
            raise Refused(remedy_without_rights(missing))
        say(without(optional))
        return
    run("Updating the list of packages", [*become_root, "apt-get", "update"], advice=APT_ADVICE)
    if missing:
        names = debian_packages(missing)
        with no_main_cluster(become_root, "postgresql" in missing):
            apt_install(become_root, names)
    if optional:
        try:
            with no_pgbouncer_service(become_root, "pgbouncer" in optional):
                apt_install(become_root, optional)
        except Refused as refusal:
            say(f"{without(optional)}\n{refusal}")


APT_ADVICE = "apt-get failed. Is the network there, and is no other package manager running?"


def without(optional: list[str]) -> str:
    return f"Not here, and not to be installed: {', '.join(optional)}. The tests that want them will be skipped."


def root_prefix() -> list[str] | None:
    """What to put before a command to run it as root: nothing, sudo, or None where there is no way."""
    if os.geteuid() == 0:
        return []
    if not shutil.which("sudo"):
        return None
    if subprocess.run(["sudo", "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0:
        return ["sudo", "-n"]
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    say("Packages have to be installed; sudo asks for your password.")
    return ["sudo"] if subprocess.run(["sudo", "-v"]).returncode == 0 else None


def debian_packages(missing: list[str]) -> list[str]:
    names = []
    if "venv" in missing:
        names.append(f"python3.{sys.version_info.minor}-venv")
    if "postgresql" in missing:
        version = newest_with_cron()
        names += [f"postgresql-{version}", f"postgresql-{version}-cron"]
    return names


def newest_with_cron() -> int:
    """The newest PostgreSQL for which apt has pg_cron. Raises Refused where it has none."""
    listing = subprocess.run(["apt-cache", "pkgnames", "postgresql-"], capture_output=True, text=True, check=False)
    middles = (name.removeprefix("postgresql-").removesuffix("-cron") for name in listing.stdout.split())
    names = set(listing.stdout.split())
    versions = [int(m) for m in middles if m.isdigit() and {f"postgresql-{m}", f"postgresql-{m}-cron"} <= names]
    if versions:
        return max(versions)
    release = os_release().get("VERSION_CODENAME", "")
    if release in DEFAULT_POSTGRESQL:
        return DEFAULT_POSTGRESQL[release]
    raise Refused(
        "apt knows no package postgresql-NN-cron. On Ubuntu it is in the component 'universe'; on others PostgreSQL's "
        "own apt repository has it. Or set SUMACLOCK_DATABASE_URL to a server that has pg_cron."
    )


# For the message to those who may not run apt-get update, on a machine that never has.
DEFAULT_POSTGRESQL = {"bookworm": 15, "trixie": 17, "noble": 16}


def remedy_without_rights(missing: list[str]) -> str:
    names = " ".join(debian_packages(missing))
    main = (
        "\nWith postgresql-common's default settings this also creates and starts a system cluster 'main', which "
        "sumaclock does not need."
    )
    return (
        f"These packages are missing, and you may not install packages here: {names}\n"
        f"Ask an administrator for: apt-get install --no-install-recommends {names}"
        + (main if "postgresql" in missing else "")
    )


def remedy_without_apt(missing: list[str]) -> str:
    if platform.system() == "Darwin":
        formulae = {"venv": "python@3.13", "postgresql": "postgresql@17 pg_cron"}
        return "Missing. Install with: brew install " + " ".join(formulae[name] for name in missing)
    words = {"venv": "Python's venv module with ensurepip", "postgresql": "PostgreSQL 14 or newer with pg_cron"}
    return f"Missing: {', '.join(words[name] for name in missing)}. Install it with this machine's package manager" + (
        ", or set SUMACLOCK_DATABASE_URL to a server that has pg_cron." if "postgresql" in missing else "."
    )


@contextmanager
def no_main_cluster(become_root: list[str], wanted: bool) -> Iterator[None]:
    """Keep Debian's package from creating and starting a system cluster "main" that nobody asked for.

    postgresql-common reads the files of this folder when a server package is installed for the first time. A file of
    our own there changes no file of the package or of the administrator, and it is taken away again so that a later
    `apt-get install postgresql-NN` behaves as its administrator expects.
    """
    if not wanted:
        yield
        return
    ours = CREATECLUSTER / "sumaclock.conf"
    script = 'mkdir -p "$1" && printf "create_main_cluster = false\\n" > "$2"'
    run_quiet([*become_root, "sh", "-c", script, "sh", str(CREATECLUSTER), str(ours)])
    try:
        yield
    finally:
        run_quiet([*become_root, "rm", "-f", str(ours)])


@contextmanager
def no_pgbouncer_service(become_root: list[str], wanted: bool) -> Iterator[None]:
    """Keep Debian's package from starting PgBouncer, now or with the machine: the tests start their own.

    policy-rc.d is how Debian lets a machine forbid that. Ours is there for a moment only, says no for this one service,
    and leaves an administrator's alone.
    """
    if not wanted:
        yield
        return
    script = (
        '[ -e "$1" ] || { printf "%s\\n" "#!/bin/sh" "# sumaclock" \'[ "$1" != pgbouncer ] || exit 101\' > "$1"; '
        'chmod 755 "$1"; }'
    )
    run_quiet([*become_root, "sh", "-c", script, "sh", str(POLICY)])
    try:
        yield
    finally:
        run_quiet([*become_root, "sh", "-c", 'if grep -qs "^# sumaclock$" "$1"; then rm "$1"; fi', "sh", str(POLICY)])
    with suppress(Refused):
        run_quiet([*become_root, "update-rc.d", "pgbouncer", "disable"])


def apt_install(become_root: list[str], names: list[str]) -> None:
    environment = ["env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"]
    command = ["apt-get", "install", "-y", "--no-install-recommends", *names]
    run(f"Installing {' '.join(names)}", [*become_root, *environment, *command], advice=APT_ADVICE)


def os_release() -> dict[str, str]:
    with suppress(OSError):
        return platform.freedesktop_os_release()
    return {}
