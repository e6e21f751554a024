"""The worker: claims runs, executes their handlers, writes the outcomes. Knows nothing of Dagster or of tasks."""

from sumaclock_dagster.worker.config import WorkerConfig
from sumaclock_dagster.worker.worker import Worker

__all__ = ["Worker", "WorkerConfig"]
