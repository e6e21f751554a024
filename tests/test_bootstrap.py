"""What bin/up and bin/test install, and what they say where they may not. Bare machines are tried by hand."""

from __future__ import annotations

import fcntl
import importlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.waiting import until

ROOT = Path(__file__).parent.parent
SCRIPTS = ("bin/up", "bin/down", "bin/test", "bin/_install")


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "bin" / "bootstrap"))
    before = set(sys.modules)
    yield importlib.import_module("system")
    for name in {"system", "environment", "console", "other_postgres", "debian_root"} - before:
        sys.modules.pop(name, None)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with an empty lock: making its .venv needs no network."""
    root = tmp_path / "check out"
    shutil.copytree(ROOT / "bin", root / "bin", ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("__init__.py", "model.py", "embedded/__init__.py", "embedded/binaries.py"):
        (root / "sumaclock_dagster" / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "sumaclock_dagster" / part, root / "sumaclock_dagster" / part)
    for name in ("README.md", "LICENSE", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    for folder in ("sql",):
        shutil.copytree(ROOT / folder, root / folder)
    for name in ("workspace.yaml", "dagster.yaml"):
        shutil.copy(ROOT / name, root)
    for name in ("requirements.txt", "requirements-dev.txt"):
        (root / name).write_text("# Nothing.\n")
    return root


def install(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(root / "bin" / "_install"), *arguments], capture_output=True, text=True, env=offline(), check=False
    )


def offline() -> dict[str, str]:
    # hatchling, which a real lock brings into .venv, comes from here.
    return os.environ | {"PYTHONPATH": sysconfig.get_paths()["purelib"], "PIP_NO_INDEX": "1"}


def test_scripts_are_plain_sh() -> None:
    for name in SCRIPTS:
        assert os.access(ROOT / name, os.X_OK)
        assert (ROOT / name).read_text().startswith("#!/bin/sh\n")
        assert subprocess.run(["sh", "-n", str(ROOT / name)], check=False).returncode == 0


def test_without_a_new_python_it_says_so(tools: Path) -> None:
    tool(tools, "python3", "exit 1")
    for name in ("dirname", "uname"):
        (tools / name).symlink_to(str(shutil.which(name, path="/usr/bin:/bin")))
    done = subprocess.run(["/bin/sh", str(ROOT / "bin" / "_install")], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert "Install it with:" in done.stderr


@pytest.mark.timeout(120)
def test_nothing_is_installed_twice(checkout: Path) -> None:
    first = install(checkout)
    assert first.returncode == 0, first.stderr
    assert "Making .venv: done" in first.stderr
    assert (checkout / ".venv" / "bin" / "sumaclock").exists()
    assert install(checkout).stderr == ""

    # A changed lock is installed, for tests too; what tests installed serves bin/up.
    (checkout / "requirements.txt").write_text("# Nothing more.\n")
    tested = install(checkout, "--test")
    assert tested.returncode == 0, tested.stderr
    assert "Installing 0 Python packages" in tested.stderr
    assert "Making .venv" not in tested.stderr
    assert install(checkout).stderr == ""

    # A moved checkout gets a new .venv, since its scripts hold their place.
    moved = checkout.rename(checkout.with_name("moved"))
    assert "Making .venv: done" in install(moved).stderr
    assert install(moved).stderr == ""

    # Packages that are not what the lock says are refused, and the next time it is tried again.
    (moved / "requirements.txt").write_text("click==8.1.7 \\\n    --hash=sha256:" + "0" * 64 + "\n")
    failed = install(moved)
    assert failed.returncode == 1
    assert "pip failed" in failed.stderr
    assert not (moved / ".venv" / "installed.json").exists()


def test_one_installation_at_a_time(checkout: Path) -> None:
    folder = os.open(checkout, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with (
            (checkout / "output").open("w+") as output,
            subprocess.Popen(["sh", str(checkout / "bin" / "_install")], stderr=output, env=offline()) as waiting,
        ):
            until(lambda: "waiting for it" in (checkout / "output").read_text(), 20, "the second's word")
            assert waiting.poll() is None
            assert not (checkout / ".venv").exists()
            fcntl.flock(folder, fcntl.LOCK_UN)
            assert waiting.wait(60) == 0
    finally:
        os.close(folder)


def test_the_newest_postgresql_with_pg_cron_is_chosen(system: ModuleType, tools: Path) -> None:
    names = "postgresql-15 postgresql-15-cron postgresql-18 postgresql-16 postgresql-16-cron postgresql-17-cron"
    tool(tools, "apt-cache", f"echo {names} | /usr/bin/tr ' ' '\\n'")
    assert system.newest_with_cron() == 16
    minor = sys.version_info.minor
    assert system.debian_packages(["venv", "postgresql"]) == [
        f"python3.{minor}-venv",
        "postgresql-16",
        "postgresql-16-cron",
    ]


def test_without_the_right_it_names_the_packages(
    system: ModuleType, tools: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool(tools, "apt-get", "exit 99")
    tool(tools, "apt-cache", "echo postgresql-17; echo postgresql-17-cron")
    tool(tools, "sudo", "exit 1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(system.Refused) as refused:
        system.install_system_packages(["postgresql"], ["chromium"])
    assert "apt-get install --no-install-recommends postgresql-17 postgresql-17-cron" in str(refused.value)
    # A missing browser alone stops nothing.
    system.install_system_packages([], ["chromium"])
    assert "not to be installed: chromium. The tests that want them will be skipped." in capsys.readouterr().err


def test_with_sudo_it_installs_without_a_main_cluster(
    system: ModuleType, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    folder = tmp_path / "createcluster.d"
    for name in ("sh", "env", "mkdir", "rm", "cat"):
        (tools / name).symlink_to(str(shutil.which(name, path="/usr/bin:/bin")))
    tool(tools, "sudo", 'shift; [ "$1" = true ] || "$@"')
    tool(
        tools,
        "apt-get",
        f'echo "$@" >> {notes}; cat {folder}/* >> {notes} 2>/dev/null; [ "$1" = update ] || exit $APT_RC',
    )
    tool(tools, "apt-cache", "echo postgresql-17; echo postgresql-17-cron")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(system, "CREATECLUSTER", folder)
    monkeypatch.setenv("APT_RC", "0")
    system.install_system_packages(["postgresql"], [])
    assert notes.read_text().splitlines() == [
        "update",
        "install -y --no-install-recommends postgresql-17 postgresql-17-cron",
        "create_main_cluster = false",
    ]
    assert list(folder.iterdir()) == []

    monkeypatch.setenv("APT_RC", "100")
    with pytest.raises(system.Refused, match="apt-get failed"):
        system.install_system_packages(["postgresql"], [])
    assert list(folder.iterdir()) == []


def test_a_service_that_tests_bring_is_not_started(
    system: ModuleType, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, notes = tmp_path / "policy-rc.d", tmp_path / "notes"
    for name in ("sh", "env", "chmod", "rm", "grep"):
        (tools / name).symlink_to(str(shutil.which(name, path="/usr/bin:/bin")))
    ask = f"{policy} pgbouncer start; echo $? >> {notes}; {policy} postgresql start; echo $? >> {notes}"
    tool(tools, "apt-get", f'[ "$1" = update ] || {{ echo "$@" >> {notes}; {ask}; }}')
    tool(tools, "update-rc.d", f'echo "$@" >> {notes}')
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(system, "POLICY", policy)
    system.install_system_packages([], ["pgbouncer"])
    assert notes.read_text().splitlines() == [
        "install -y --no-install-recommends pgbouncer",
        "101",
        "0",
        "pgbouncer disable",
    ]
    assert not policy.exists()

    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    system.install_system_packages([], ["pgbouncer"])
    assert policy.read_text() == "#!/bin/sh\nexit 101\n"


def test_on_macos_it_names_the_formulae(system: ModuleType, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system.platform, "system", lambda: "Darwin")
    with pytest.raises(system.Refused, match=r"brew install postgresql@17 pg_cron"):
        system.install_system_packages(["postgresql"], [])


@pytest.fixture
def other(system: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module("other_postgres")
    monkeypatch.setattr(module, "_place", lambda: tmp_path / "postgres")
    monkeypatch.setattr(module, "KEYRING", ROOT)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUMACLOCK_DEBIAN_MIRROR", "http://mirror.example/debian/")
    return module


def test_another_postgresql_is_made_once(
    other: ModuleType, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = "usr/lib/postgresql/17/bin"
    for name in ("apt-get", "unshare"):
        tool(tools, name, "exit 99")
    unpack = (
        f'/usr/bin/mkdir -p "$5/{programs}" "$5/etc"; for p in postgres psql pg_config; do : >"$5/{programs}/$p"; done'
    )
    tool(tools, "mmdebstrap", f'echo "$@" >> {tmp_path}/notes; : >{tmp_path}/postgres/17/debian.tar')
    tool(tools, "tar", unpack)
    monkeypatch.setattr(other, "_try", lambda program: None)
    folder = other.provide_postgres("17")
    assert folder == tmp_path / "postgres/17/bin"
    (made,) = (tmp_path / "notes").read_text().splitlines()
    assert f"--keyring={ROOT} --include=postgresql-17,postgresql-17-cron,libfaketime" in made
    assert made.endswith(f" trixie {tmp_path}/postgres/17/debian.tar http://mirror.example/debian")
    # pg_config would tell folders inside.
    assert sorted(os.listdir(folder)) == ["postgres", "psql"]
    assert (folder.parent / "lib").readlink() == Path("debian/usr/lib/postgresql/17/lib")
    assert sorted(os.listdir(folder.parent)) == ["bin", "call", "debian", "enter", "lib", "share"]
    assert other.provide_postgres("17") == folder
    assert len((tmp_path / "notes").read_text().splitlines()) == 1


@pytest.fixture
def small_root() -> Iterator[Path]:
    """What sh and a few programs need, as a root. Who is not root may enter it, which is not so in tmp_path."""
    folder = Path(tempfile.mkdtemp(prefix="sumaclock-root-"))
    folder.chmod(0o755)
    root = folder / "debian"
    for name in ("usr/bin", "usr/lib", "usr/lib64", "etc"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for name in ("sh", "env", "id", "unshare", "umount"):
        program = str(shutil.which(name, path="/usr/bin:/bin"))
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for file in (f"/usr/bin/{name}", *re.findall(r"(/\S+)", listed)):
            (root / file[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(program if file == f"/usr/bin/{name}" else file, root / file[1:])
    (root / "etc" / "inside").touch()
    try:
        yield root
    finally:
        shutil.rmtree(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux has roots of Debian")
def test_a_program_inside_a_root_is_the_process_that_was_started_and_has_no_rights(
    system: ModuleType, small_root: Path
) -> None:
    module = importlib.import_module("debian_root")
    programs = small_root.parent / "programs"
    module.write_programs(small_root, "/usr/bin", programs, ROOT)
    user = {"user": module.NO_ID - 1, "group": module.NO_ID - 1} if os.geteuid() == 0 else {}
    started = [str(programs / "sh"), "-c", SEEN_INSIDE, "sh", str(small_root.parent)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        started, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=small_root.parent, **user
    ) as process:
        try:
            assert process.stdout is not None
            seen = process.stdout.readline().split()
            said = "" if seen or process.stderr is None else process.stderr.read()
            if "unshare failed" in said:
                pytest.skip(f"This machine's users may make no namespaces: {said}")
            uid = user.get("user", os.geteuid())
            assert seen == [str(process.pid), str(small_root.parent), str(uid), "inside", "seen", "0000000000000000"], (
                said
            )
            # As whoever looks for a server by its folder sees it, too.
            assert Path(f"/proc/{process.pid}/cwd").readlink() == small_root.parent
            process.terminate()
            assert process.wait(20) == -signal.SIGTERM
        finally:
            process.kill()
    # The machine has none of its mounts.
    assert str(small_root) not in Path("/proc/mounts").read_text()
    assert list((small_root / "proc").iterdir()) == []


SEEN_INSIDE = """
read name capabilities <<end
$(while read -r line; do case $line in CapEff:*) echo $line; esac; done </proc/self/status)
end
echo $$ "$PWD" "$(id -u)" "$(cd /etc && echo inside*)" "$([ -e "$1/enter" ] && echo seen)" $capabilities
read -r line
"""


def test_without_a_mirror_it_is_told_how_to_name_one(
    other: ModuleType, system: ModuleType, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert other._mirror() == "http://mirror.example/debian"
    monkeypatch.delenv("SUMACLOCK_DEBIAN_MIRROR")
    tool(tools, "apt-get", "echo ' http://host.example/debian/'")
    assert other._mirror() == "http://host.example/debian"
    tool(tools, "apt-get", "true")
    with pytest.raises(system.Refused, match="Set SUMACLOCK_DEBIAN_MIRROR"):
        other._mirror()


def test_without_another_postgresql_nothing_goes_on(
    other: ModuleType, system: ModuleType, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(system.Refused, match=r"No release of Debian has PostgreSQL 12\. .* knows 15 .*, 17 "):
        other.provide_postgres("12")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(other, "KEYRING", tmp_path / "no keyring")
    packages = "apt mmdebstrap tar util-linux uidmap debian-archive-keyring"
    with pytest.raises(system.Refused, match=f"apt-get install {packages}") as refused:
        other.provide_postgres("17")
    assert "SUMACLOCK_PG_BIN" in str(refused.value)

    # Who may install packages has what is missing installed.
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("tar", "unshare"):
        tool(tools, name, "exit 0")
    (tools / "env").symlink_to("/usr/bin/env")
    tool(tools, "mmdebstrap.deb", 'echo "no route to host"; exit 100')
    put = f"/usr/bin/cp {tools}/mmdebstrap.deb {tools}/mmdebstrap"
    tool(tools, "apt-get", f'echo "$@" >> {tmp_path}/installed; [ "$1" = update ] || {put}')
    with pytest.raises(system.Refused, match="no route to host"):
        other.provide_postgres("17")
    assert (tmp_path / "installed").read_text().splitlines() == [
        "update",
        "install -y --no-install-recommends mmdebstrap debian-archive-keyring",
    ]

    # Half of it is no PostgreSQL: the next time, it is made again.
    monkeypatch.setattr(other, "KEYRING", ROOT)
    for _ in range(2):
        with pytest.raises(system.Refused, match=r"no route to host(\n|.)*Is the network there, and does http"):
            other.provide_postgres("17")
