"""Finding PostgreSQL with pg_cron in the layouts that packagers use, and saying what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from sumaclock_dagster.embedded.binaries import Binaries, find_binaries
from sumaclock_dagster.model import SumaclockError


def _program(path: Path, says: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)


def _server(bin_dir: Path, version: str) -> Path:
    for name in ("initdb", "psql"):
        _program(bin_dir / name, "exit 0")
    _program(bin_dir / "postgres", f'echo "postgres (PostgreSQL) {version}"')
    return bin_dir


def _pg_cron(libraries: Path, share: Path, end: str = "so") -> None:
    for path in (libraries / f"pg_cron.{end}", share / "extension" / "pg_cron.control"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def _debian(root: Path, major: int, *, pg_cron: bool = True, version: str | None = None) -> Path:
    home = root / "usr/lib/postgresql" / str(major)
    share = root / "usr/share/postgresql" / str(major)
    (share / "extension").mkdir(parents=True)
    (home / "lib").mkdir(parents=True)
    if pg_cron:
        _pg_cron(home / "lib", share)
    return _server(home / "bin", version or f"{major}.4 (Debian {major}.4-1)")


def test_the_one_of_this_machine_is_real(binaries: Binaries) -> None:
    assert (binaries.bin_dir / "pg_dump").exists()
    assert binaries.major >= 13


def test_the_newest_with_pg_cron_wins(tmp_path: Path) -> None:
    _debian(tmp_path, 9)
    expected = _debian(tmp_path, 15)
    _debian(tmp_path, 17, pg_cron=False)
    assert find_binaries(root=tmp_path, path="") == Binaries(expected, 15)


def test_data_of_a_version_wants_that_version(tmp_path: Path) -> None:
    expected = _debian(tmp_path, 15)
    _debian(tmp_path, 17)
    assert find_binaries(major=15, root=tmp_path, path="") == Binaries(expected, 15)


def test_a_beta_counts_by_its_number(tmp_path: Path) -> None:
    expected = _debian(tmp_path, 18, version="18beta2 (Debian)")
    assert find_binaries(root=tmp_path, path="") == Binaries(expected, 18)


def test_homebrew_on_apple_silicon(tmp_path: Path) -> None:
    home = tmp_path / "opt/homebrew/opt/postgresql@17"
    bin_dir = _server(home / "bin", "17.2 (Homebrew)")
    libraries, share = tmp_path / "opt/homebrew/lib/postgresql@17", tmp_path / "opt/homebrew/share/postgresql@17"
    _pg_cron(libraries, share, "dylib")
    _program(bin_dir / "pg_config", f'case $1 in --pkglibdir) echo "{libraries}";; --sharedir) echo "{share}";; esac')
    assert find_binaries(root=tmp_path, path="") == Binaries(bin_dir, 17)


def test_pg_config_on_the_path(tmp_path: Path) -> None:
    bin_dir = _server(tmp_path / "own/bin", "16.1")
    _pg_cron(tmp_path / "own/lib", tmp_path / "own/share")
    _program(
        bin_dir / "pg_config",
        f"""case $1 in --bindir) echo "{bin_dir}";; --pkglibdir) echo "{tmp_path}/own/lib";;
        --sharedir) echo "{tmp_path}/own/share";; esac""",
    )
    assert find_binaries(root=tmp_path / "nothing", path=str(bin_dir)) == Binaries(bin_dir, 16)


def test_a_named_folder_is_the_only_one(tmp_path: Path) -> None:
    named = _server(tmp_path / "own/bin", "14.9")
    _pg_cron(tmp_path / "own/lib", tmp_path / "own/share")
    _debian(tmp_path, 17)
    assert find_binaries(named, root=tmp_path, path="") == Binaries(named, 14)
    with pytest.raises(SumaclockError, match=f"SUMACLOCK_PG_BIN names {tmp_path}/none, but there is no PostgreSQL"):
        find_binaries(tmp_path / "none", root=tmp_path, path="")


def test_without_pg_cron_its_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    _debian(tmp_path, 15, pg_cron=False)
    with pytest.raises(SumaclockError, match=r"without pg_cron\. Install it: sudo apt-get install postgresql-15-cron$"):
        find_binaries(root=tmp_path, path="")


def test_with_nothing_installed_all_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    with pytest.raises(SumaclockError, match=r"apt-get install postgresql-NN postgresql-NN-cron \(NN is"):
        find_binaries(root=tmp_path, path="")
    with pytest.raises(SumaclockError, match=r"apt-get install postgresql-17 postgresql-17-cron$"):
        find_binaries(major=17, root=tmp_path, path="")


def test_on_macos_formulae_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(SumaclockError, match=r"brew install postgresql@17 pg_cron$"):
        find_binaries(root=tmp_path, path="")
