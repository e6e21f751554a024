"""Stacks that start at the same time show their UIs on different ports."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sumaclock_dagster.embedded.ui_port import HOST, any_free_port, hold_port
from sumaclock_dagster.model import SumaclockError

HOLD = """
from sumaclock_dagster.embedded.ui_port import hold_port
with hold_port(None) as port:
    print(port, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other stacks may start on this machine meanwhile."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_a_port_that_another_stack_has_chosen_is_not_chosen_again() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as one:
        assert one.stdout is not None
        chosen = int(one.stdout.readline())
        with hold_port(None) as port:
            assert port > chosen
        with pytest.raises(SumaclockError, match=f"Port {chosen} on .* is taken"), hold_port(chosen):
            pass
        one.kill()
        one.wait(10)
        with hold_port(chosen) as again:
            assert again == chosen


def test_a_port_that_something_listens_on_is_refused_with_what_to_do() -> None:
    with socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]
        said = f"Port {port} on {HOST} is taken. Choose another one with --port."
        with pytest.raises(SumaclockError, match=said), hold_port(port):
            pass


def test_a_folder_of_somebody_elses_is_not_trusted(tmp_path: Path) -> None:
    with hold_port(any_free_port()):
        pass
    (folder,) = tmp_path.iterdir()
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SumaclockError, match="belongs to somebody else"), hold_port(any_free_port()):
        pass
