"""Where the stack's Dagster lives: its home folder, its environment, and the commands of the stack's processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from sumaclock_dagster.embedded.processes import MARK
from sumaclock_dagster.embedded.ui_port import HOST
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.settings import Settings

CODE_SERVER, DAEMON, WEBSERVER, RECEIVER = "code-server", "daemon", "webserver", "receiver"
LOCATION = "sumaclock"
# Server processes need no owner rights, so they don't learn the owner's URL.
NOT_PASSED_ON = ("SUMACLOCK_OWNER_DATABASE_URL",)


@dataclass(frozen=True, slots=True)
class DagsterHome:
    """folder: DAGSTER_HOME. workspace: the workspace file. environment: of every process, URLs included.

    definitions: module that the code server serves. receiver_port: of the demo's stand-in for core-api; None where
    there is none.
    """

    folder: Path
    workspace: Path
    environment: Mapping[str, str]
    code_server_port: int
    webserver_port: int
    definitions: str
    receiver_port: int | None = None

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.webserver_port}"


def make_dagster_home(
    settings: Settings, mark: str, code_server_port: int, webserver_port: int, receiver_port: int | None = None
) -> DagsterHome:
    """Make the folder with this installation's dagster.yaml. Raises SumaclockError when no database is known."""
    home = settings.home.absolute()
    folder = home / "dagster"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(project_file("dagster.yaml"), folder / "dagster.yaml")
    environment = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON} | {
        "SUMACLOCK_HOME": str(home),
        "SUMACLOCK_DATABASE_URL": settings.app_url,
        "SUMACLOCK_CRON_DATABASE_URL": settings.cron_url,
        "SUMACLOCK_DAGSTER_DATABASE_URL": settings.dagster_url,
        "SUMACLOCK_CODE_SERVER_PORT": str(code_server_port),
        "DAGSTER_HOME": str(folder),
        "PYTHONUNBUFFERED": "1",
        # A proxy that the environment names is not for calls from one of our processes to another.
        "no_grpc_proxy": f"{HOST},localhost",
        MARK: mark,
    }
    environment.setdefault("SUMACLOCK_DAGSTER_GRAPHQL_URL", f"http://{HOST}:{webserver_port}/graphql")
    if receiver_port is not None:
        environment["SUMACLOCK_CORE_API_URL"] = f"http://{HOST}:{receiver_port}"
    workspace = project_file("workspace.yaml")
    return DagsterHome(
        folder, workspace, environment, code_server_port, webserver_port, settings.definitions, receiver_port
    )


def project_file(name: str) -> Path:
    """A file that a wheel carries inside the package and a checkout beside it. Raises SumaclockError without it."""
    package = Path(str(files("sumaclock_dagster")))
    for place in (package / name, package.parent / name):
        if place.is_file():
            return place
    raise SumaclockError(f"{name} is missing from this installation ({package}). Install again.")


def commands(home: DagsterHome) -> dict[str, list[str]]:
    """Command lines by process name. No URL is in them: every user of a machine can read command lines."""
    dagster = [sys.executable, "-m", "dagster"]
    workspace = ["-w", str(home.workspace)]
    serve = ["--host", HOST, "--port", str(home.code_server_port), "--location-name", LOCATION]
    return {
        CODE_SERVER: [*dagster, "api", "grpc", "-m", home.definitions, *serve],
        DAEMON: [sys.executable, "-m", "dagster._daemon", "run", *workspace],
        WEBSERVER: [
            *(sys.executable, "-m", "dagster_webserver", *workspace),
            *("--host", HOST, "--port", str(home.webserver_port)),
        ],
        RECEIVER: [sys.executable, "-m", "sumaclock_dagster.embedded.receiver", str(home.receiver_port)],
    }


def bring_schema_up_to_date(home: DagsterHome, always: bool) -> None:
    """Make or upgrade Dagster's tables, by one process before three would do it at once.

    always: even if this Dagster version has done it before for this home. Raises SumaclockError with Dagster's words.
    """
    note = home.folder / "schema-version"
    current = version("dagster")
    if not always and note.exists() and note.read_text("utf-8") == current:
        return
    note.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "instance", "migrate"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=dict(home.environment),
        start_new_session=True,
        check=False,
    )
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise SumaclockError(f"Dagster could not make or upgrade its tables. The end of what it said:\n{last}")
    note.write_text(current, "utf-8")
