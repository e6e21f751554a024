"""The walls between the layers hold, and the tool that watches them would notice a breach."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "sumaclock_dagster"
EXECUTING = {"execute", "executemany", "stream", "copy"}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).parent / "lint-imports"
    return subprocess.run(
        [str(tool), "--no-cache", "--config", str(folder / ".importlinter")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def test_layers_hold() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("model.py", "from sumaclock_dagster import db", "Layers"),
        ("queue/runs.py", "import sumaclock_dagster.clock.jobs", "Layers"),
        ("worker/worker.py", "import sumaclock_dagster.reports.frames", "Layers"),
        ("doctor/reach.py", "import sumaclock_dagster.embedded.cluster", "Layers"),
        ("cli/jobs.py", "import sumaclock_dagster.defs.work", "Layers"),
        ("worker/worker.py", "import sumaclock_dagster.tasks.api", "The worker knows no tasks"),
        ("prune.py", "import dagster", "Only definitions and defs import Dagster"),
        ("newcomer.py", "", "Layers"),
    ],
)
def test_a_breach_is_noticed(copy: Path, module: str, line: str, contract: str) -> None:
    file = copy / PACKAGE.name / module
    before = file.read_text() if file.exists() else '"""A module that nobody gave a place."""\n'
    file.write_text(f"{before}\n{line}\n")
    done = lint_imports(copy)
    assert done.returncode == 1, done.stdout
    # A module without a place is an error of the whole contract, reported in words of its own.
    assert f"{contract} BROKEN" in done.stdout or "newcomer" in done.stdout


def test_model_needs_the_standard_library_only() -> None:
    imported = {name.partition(".")[0] for name in _imports(PACKAGE / "model.py")}
    assert imported
    assert imported <= sys.stdlib_module_names


def test_dagster_is_imported_in_its_own_layer_only() -> None:
    """As the contract says, and for modules, too, that nobody has added to the contract yet."""
    importing = {
        path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for path in PACKAGE.rglob("*.py")
        if any(name.partition(".")[0].startswith("dagster") for name in _imports(path))
    }
    assert importing == {"definitions", "defs"}


def test_every_statement_is_a_file() -> None:
    """No call that executes SQL is given a text written in Python."""
    calls = [
        (path, call)
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in EXECUTING
    ]
    assert len(calls) > 20
    written = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path, call in calls
        if call.args and isinstance(call.args[0], ast.Constant | ast.JoinedStr | ast.BinOp)
    ]
    assert written == []


def test_dagster_definitions_execute_no_statement() -> None:
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in [*(PACKAGE / "defs").rglob("*.py"), PACKAGE / "definitions.py"]
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in EXECUTING
    ]
    assert calls == []


def test_no_query_file_is_forgotten() -> None:
    """Every file in queries/ is named somewhere in the code."""
    code = "\n".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    names = [path.stem for path in (PACKAGE / "queries").glob("*.sql")]
    assert names
    # Some names are put together: compare_{place}_rights.
    unused = [name for name in names if f'"{name}"' not in code and not _is_put_together(name, code)]
    assert unused == []


def _is_put_together(name: str, code: str) -> bool:
    first, *_, last = name.split("_")
    return f'"{first}_{{' in code and f'}}_{last}"' in code


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names
