"""bin/_pytest: what it says and how it ends, whatever becomes of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# With the scheduler of this suite.
CONFTEST = "from tests.conftest import pytest_xdist_make_scheduler\n"
FIRST_TIME = """
from pathlib import Path
import os
seen = Path(__file__).with_suffix(".seen")
first = not seen.exists()
seen.touch()
"""
PASSES = "def test_passes(): pass\n"
RETRIED = "== What failed is tried once more"


def run_tests(folder: Path, **files: str) -> tuple[int, str]:
    """The exit code and all output for these files of tests."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    found = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [ROOT / "bin" / "_pytest", "-n", "1", "-q"],
        cwd=folder,
        env=os.environ | found,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("text", "code", "last"),
    [
        (PASSES, 0, "2 passed"),
        (f"{FIRST_TIME}def test_it(): assert not first\n", 0, "== All passed, these last ones only alone"),
        ("def test_it(): assert False\n", 1, "1 failed"),
        (f"{FIRST_TIME}def test_it():\n    if first: os._exit(3)\n", 1, "stays a failure"),
        ("import no_such_module\n", 2, "1 error"),
        ("def test_it(missing): pass\n", 1, "1 error"),
    ],
    ids=["passes", "passes alone", "fails twice", "crashes its process", "no import", "no fixture"],
)
def test_the_last_line_and_the_exit_code_tell_the_truth(tmp_path: Path, text: str, code: int, last: str) -> None:
    found, output = run_tests(tmp_path, other=PASSES, this=text)
    assert found == code, output
    assert last in output.splitlines()[-1], output
    assert (RETRIED in output) == (text != PASSES), output


def test_what_failed_before_is_not_tried_and_no_test_is_a_failure(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, stdout=subprocess.DEVNULL, check=False)
    code, output = run_tests(tmp_path)
    assert code == 5, output
    assert RETRIED not in output
