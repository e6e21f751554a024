"""The task kinds that come with sumaclock."""

from __future__ import annotations

from typing import Any, Protocol

from sumaclock_dagster.db import Connection
from sumaclock_dagster.model import Done, Failed, Outcome, SumaclockError
from sumaclock_dagster.tasks.dagster_kind import dagster_kind
from sumaclock_dagster.tasks.kinds import TaskKinds, TaskRun

PATH = "/ai-task-runs"


class QueueDelivery(Protocol):
    """Queues a request to core-api in the caller's transaction; False where the key is known already."""

    def __call__(
        self,
        conn: Connection,
        *,
        idempotency_key: str,
        organization_id: str,
        user_id: str,
        method: str,
        path: str,
        body: Any,
    ) -> bool: ...


def own_task_kinds(queue_delivery: QueueDelivery | None = None) -> TaskKinds:
    """Kind `core_api` queues a request to core-api: payload {"method": "POST", "path": "/...", "body": ...}, each of
    them optional; without a body the task run describes itself. Kind `log` writes a line to the log. Kind `dagster`
    launches a Dagster run: see `dagster_kind`."""
    kinds = TaskKinds()
    kinds.add(dagster_kind())
    if queue_delivery is not None:
        _add_core_api(kinds, queue_delivery)

    @kinds.register("log", together=True)
    def log(run: TaskRun) -> dict[str, Any]:
        run.log.info("task %s of %s: %s", run.task_id, run.organization_id, run.title or "(no title)")
        return {"logged": run.title}

    return kinds


def _add_core_api(kinds: TaskKinds, queue_delivery: QueueDelivery) -> None:
    @kinds.register("core_api", together=True)
    def core_api(run: TaskRun) -> Outcome:
        wanted = run.payload if isinstance(run.payload, dict) else {}
        method, path = wanted.get("method", "POST"), wanted.get("path", PATH)
        if not isinstance(method, str) or not isinstance(path, str):
            return Failed("The payload's method and path must be text, for example 'POST' and '/ai-task-runs'.")
        try:
            queued = queue_delivery(
                run.connection,
                idempotency_key=run.idempotency_key,
                organization_id=run.organization_id,
                user_id=run.user_id,
                method=method,
                path=path,
                body=wanted.get("body", _description(run)),
            )
        except SumaclockError as error:
            return Failed(str(error))
        return Done({"queued": queued, "idempotency_key": run.idempotency_key})


def _description(run: TaskRun) -> dict[str, Any]:
    return {
        "task_id": str(run.task_id),
        "title": run.title,
        "organization_id": run.organization_id,
        "user_id": run.user_id,
        "scheduled_for": run.scheduled_for.isoformat(),
        "trigger": run.trigger.value,
        "payload": run.payload,
    }
