"""The handler of kind `dagster`: a job whose runs are Dagster runs of their own."""

from __future__ import annotations

from sumaclock_dagster.db import make_pool
from sumaclock_dagster.handlers import HandlerRun, Handlers
from sumaclock_dagster.launches import DAGSTER_KIND
from sumaclock_dagster.launches.requests import hand_over, request_launch
from sumaclock_dagster.launches.target import resolve_target
from sumaclock_dagster.launches.templates import Occurrence
from sumaclock_dagster.made_once import Once
from sumaclock_dagster.model import Failed, Handed, Outcome, SumaclockError
from sumaclock_dagster.settings import Settings

APPLICATION = "sumaclock launches"
CONNECTIONS = 4


def launch_handlers(settings: Settings) -> Handlers:
    """A registry of kind `dagster`. Connects to nothing before the first run."""
    handlers = Handlers()
    pool = Once(lambda: make_pool(settings.app_url, APPLICATION, CONNECTIONS, "use_utc"))

    # What raises here is the database's absence, which is over some time.
    @handlers.register(DAGSTER_KIND, max_attempts=100, backoff_seconds=1, backoff_max_seconds=60)
    def dagster(run: HandlerRun) -> Outcome:
        occurrence = Occurrence(
            scheduled_for=run.scheduled_at,
            organization_id=run.organization_id,
            user_id=run.user_id,
            run_id=run.id,
        )
        try:
            target = resolve_target(run.payload, occurrence)
            with pool.get().connection() as conn, conn.transaction():
                request_launch(conn, occurrence, run.job_id, target, run.idempotency_key, anew=False)
                hand_over(conn, run.id, run.attempt)
        except SumaclockError as error:
            return Failed(str(error))
        return Handed()

    return handlers
