"""What a worker is told at its start."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from uuid import UUID

from sumaclock_dagster.settings import Settings


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """url: the app database as the app role. worker_id: as requested, or None to request one at the start."""

    url: str
    settings: Settings
    code_version: str
    worker_id: int | None = None
    dagster_run_id: UUID | None = None
    host: str = ""
    pid: int = 0

    @classmethod
    def from_settings(
        cls, settings: Settings, *, worker_id: int | None, dagster_run_id: str | None, code_version: str
    ) -> WorkerConfig:
        return cls(
            url=settings.app_url,
            settings=settings,
            code_version=code_version,
            worker_id=worker_id,
            dagster_run_id=UUID(dagster_run_id) if dagster_run_id else None,
            host=socket.gethostname(),
            pid=os.getpid(),
        )
