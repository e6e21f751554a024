"""`sumaclock` itself: it names every command and imports none but the one that is used."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from sumaclock_dagster.cli.main import COMMANDS, find_command, main

SLOW = "{'psycopg', 'pydantic', 'rich', 'httpx', 'pandas', 'dagster'}"


def test_help_names_every_command_and_imports_nothing_slow() -> None:
    code = f"""
import sys
from sumaclock_dagster.cli.main import main
main(["--help"], standalone_mode=False)
print("slow:", sorted({SLOW} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    listed = [line.split()[0] for line in done.stdout.partition("Commands:\n")[2].splitlines()[:-1]]
    assert listed == sorted(COMMANDS)
    assert done.stdout.endswith("slow: []\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_of_itself_what_the_list_says(name: str) -> None:
    command = find_command(name)
    assert command.name == name
    assert str(command.help).startswith(COMMANDS[name][1])


def test_a_wrong_name_and_a_wrong_setting_are_told() -> None:
    unknown = CliRunner().invoke(main, ["jbos"])
    assert unknown.exit_code == 2
    assert "No such command 'jbos'" in unknown.stderr
    refused = CliRunner().invoke(main, ["jobs", "list"], env={"SUMACLOCK_POLL_SECONDS": "never"})
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("Error: SUMACLOCK_POLL_SECONDS: ")
