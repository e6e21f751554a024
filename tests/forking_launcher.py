"""A run launcher for tests of many Dagster runs: each in a process of its own, forked from one that has everything
imported, which is quicker than a new one by seconds. `python -m tests.forking_launcher` is that process.
"""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.execution.api import execute_run
from dagster._core.launcher import LaunchRunContext, RunLauncher
from dagster._core.origin import JobPythonOrigin
from dagster._serdes import ConfigurableClass, ConfigurableClassData
from dagster._utils.hosted_user_process import recon_job_from_origin

PIPE = "runs.fifo"


class ForkingLauncher(RunLauncher, ConfigurableClass):
    """Hands run ids to the process that forks, through a pipe in DAGSTER_HOME."""

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        self._inst_data = inst_data
        super().__init__()

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> ForkingLauncher:  # noqa: ARG003
        return cls(inst_data)

    def launch_run(self, context: LaunchRunContext) -> None:
        pipe = os.open(Path(os.environ["DAGSTER_HOME"]) / PIPE, os.O_WRONLY)
        os.write(pipe, f"{context.dagster_run.run_id}\n".encode())
        os.close(pipe)

    def terminate(self, run_id: str) -> bool:
        return False


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    importlib.import_module("user_code")
    # Open for writing as well, so that it never comes to an end.
    with os.fdopen(os.open(Path(os.environ["DAGSTER_HOME"]) / PIPE, os.O_RDWR), "r") as pipe:
        while line := pipe.readline():
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                try:
                    _execute(line.strip())
                finally:
                    os._exit(0)


def _execute(run_id: str) -> None:
    with dg.DagsterInstance.get() as instance:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        origin = run.job_code_origin
        assert isinstance(origin, JobPythonOrigin)
        execute_run(recon_job_from_origin(origin), run, instance)


if __name__ == "__main__":
    main()
