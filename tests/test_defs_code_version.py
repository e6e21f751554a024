"""The code version: the same in every process of a deployment, another after each change of what workers execute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sumaclock_dagster.code_version import code_version
from tests.dagster_storage import ROOT

SPEC = "customer_code.jobs:handlers"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "customer_code"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "jobs.py").write_text("handlers = None")
    (folder / "helpers.py").write_text("RATE = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def elsewhere(spec: str, *path: Path) -> str:
    """The version that another process computes, with a hash seed of its own."""
    code = f"from sumaclock_dagster.code_version import code_version; print(code_version({spec!r}))"
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, (ROOT, *path)))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_every_process_computes_the_same(package: Path) -> None:
    assert code_version(SPEC) == elsewhere(SPEC, package.parent)


def test_a_change_anywhere_in_a_handlers_package_counts(package: Path) -> None:
    before = code_version(SPEC)
    (package / "helpers.py").write_text("RATE = 2")
    changed = code_version(SPEC)
    (package / "helpers.py").write_text("RATE = 1")
    assert changed != before
    assert code_version(SPEC) == before


def test_which_handlers_are_named_counts(package: Path) -> None:
    assert code_version(SPEC) != code_version("")


def test_other_files_and_the_place_do_not_count(package: Path, tmp_path: Path) -> None:
    before = code_version(SPEC)
    (package / "notes.txt").write_text("later")
    moved = tmp_path / "moved"
    moved.mkdir()
    package.rename(moved / "customer_code")
    assert elsewhere(SPEC, moved) == before


def test_a_module_without_package_and_one_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lonely_jobs.py").write_text("handlers = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = code_version("lonely_jobs:handlers")
    (tmp_path / "lonely_jobs.py").write_text("handlers = 2")
    assert code_version("lonely_jobs:handlers") != before
    assert code_version("nowhere_at_all:handlers") != code_version("")
