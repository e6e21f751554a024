"""The virtual environment .venv, made from a lock of hashes."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from console import Refused, run

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
STAMP = VENV / "installed.json"
RUNTIME_LOCK, TEST_LOCK = "requirements.txt", "requirements-dev.txt"


def venv_works() -> bool:
    python = VENV / "bin" / "python"
    if not python.exists():
        return False
    probe = [str(python), "-c", "import sys, pip; print(*sys.version_info[:2])"]
    answer = subprocess.run(probe, capture_output=True, text=True, check=False).stdout.split()
    return answer == [str(part) for part in sys.version_info[:2]]


def was_moved() -> bool:
    """pyvenv.cfg holds the command that made the environment, and with it its place."""
    lines = (VENV / "pyvenv.cfg").read_text("utf-8").splitlines()
    made = [line for line in lines if line.startswith("command = ")]
    return bool(made) and not made[0].endswith(f" {VENV}")


def make_venv() -> None:
    """Make .venv where it is missing, half made, of a Python that is gone, or moved: its scripts hold its path."""
    if venv_works() and not was_moved():
        return
    if importlib.util.find_spec("ensurepip") is None:
        raise Refused(f"{sys.executable} has no ensurepip, so it cannot make a virtual environment with pip.")
    run("Making .venv", [sys.executable, "-m", "venv", "--clear", str(VENV)])


def install_python_packages(lock: str) -> None:
    """Install what the lock names, by hash, and the project itself; only when the lock or pyproject.toml changed."""
    wanted = {name: checksum(name) for name in (lock, "pyproject.toml")}
    if lock == TEST_LOCK:
        # It holds the whole other lock, so what it installed serves bin/up as well.
        wanted[RUNTIME_LOCK] = checksum(RUNTIME_LOCK)
    have = stamp()
    if all(have.get(name) == value for name, value in wanted.items()):
        return
    STAMP.unlink(missing_ok=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    total = sum("==" in line and not line.startswith("#") for line in (ROOT / lock).read_text("utf-8").splitlines())
    if have.get(lock) != wanted[lock]:
        run(
            f"Installing {total} Python packages into .venv",
            [*pip, "--only-binary=:all:", "--require-hashes", "-r", str(ROOT / lock)],
            advice="pip failed. Is the network there?",
            count=("Collecting ", total),
        )
    run("Installing sumaclock itself", [*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)])
    kept = have if have.get(lock) == wanted[lock] else {}
    STAMP.write_text(json.dumps(kept | wanted), "utf-8")


def stamp() -> dict[str, str]:
    try:
        return dict(json.loads(STAMP.read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def checksum(name: str) -> str:
    return hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
