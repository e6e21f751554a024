"""All handlers that come with sumaclock; yours are added by SUMACLOCK_HANDLERS."""

from __future__ import annotations

from sumaclock_dagster.clock.spent_slots import slot_handlers
from sumaclock_dagster.demo import demo_handlers
from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.launches.handler import launch_handlers
from sumaclock_dagster.outbox import queue_delivery
from sumaclock_dagster.outbox.handler import delivery_handlers
from sumaclock_dagster.own_system_jobs import own_system_jobs
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.tasks.handler import task_handlers
from sumaclock_dagster.tasks.own_kinds import own_task_kinds


def own_handlers(settings: Settings) -> Handlers:
    """A new registry. Connects to nothing. Raises SumaclockError for task kinds or an access check that don't load."""
    handlers = Handlers()
    for registry in (
        demo_handlers(),
        task_handlers(settings, own_task_kinds(queue_delivery)),
        delivery_handlers(settings),
        launch_handlers(settings),
        own_system_jobs(settings),
        slot_handlers(settings),
    ):
        handlers.include(registry)
    return handlers
