"""Task kind `dagster`: an occurrence is a Dagster run of a job or of assets, and ends as that does."""

from __future__ import annotations

from sumaclock_dagster.handlers import Registered
from sumaclock_dagster.launches import DAGSTER_KIND
from sumaclock_dagster.launches.requests import request_launch
from sumaclock_dagster.launches.target import resolve_target
from sumaclock_dagster.launches.templates import Occurrence
from sumaclock_dagster.model import Failed, Handed, Outcome, Policy, SumaclockError
from sumaclock_dagster.tasks.kinds import TaskFunction, TaskRun


def dagster_kind() -> Registered[TaskFunction]:
    """Payload {"job" or "assets", "location", "repository", "run_config", "tags", "partition_key"}; see
    `launches.target`."""
    return Registered(DAGSTER_KIND, _launch, Policy())


def _launch(run: TaskRun) -> Outcome:
    occurrence = Occurrence(
        scheduled_for=run.scheduled_for,
        organization_id=run.organization_id,
        user_id=run.user_id,
        run_id=run.run_id,
        timezone=run.timezone,
        task_id=run.task_id,
        title=run.title,
    )
    try:
        target = resolve_target(run.payload, occurrence)
        asked = request_launch(run.connection, occurrence, run.job_id, target, run.idempotency_key, anew=True)
    except SumaclockError as error:
        return Failed(str(error))
    return Handed() if asked else Failed("Another Dagster run of this occurrence is under way.")
