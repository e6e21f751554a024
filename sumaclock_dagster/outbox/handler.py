"""The handler of kind `deliver_core_api`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from sumaclock_dagster.db import make_pool
from sumaclock_dagster.handlers import HandlerRun, Handlers
from sumaclock_dagster.made_once import Once
from sumaclock_dagster.model import Skip
from sumaclock_dagster.outbox import line
from sumaclock_dagster.outbox.delivery import Sending
from sumaclock_dagster.settings import Settings

if TYPE_CHECKING:
    from sumaclock_dagster.outbox.core_api import CoreApi

KIND = "deliver_core_api"
# The one job whose runs deliver; the migration of these tables knows it by this id.
DELIVERY_JOB = uuid5(NAMESPACE_URL, "sumaclock:deliver_core_api")
APPLICATION = "sumaclock deliveries"
# One run sends, and others look in for a moment.
CONNECTIONS = 2
NOWHERE_SECONDS = 300.0


def delivery_handlers(settings: Settings) -> Handlers:
    """A registry of the kind whose runs deliver what is due to core-api. Connects to nothing before the first run."""
    handlers = Handlers()
    pool = Once(lambda: make_pool(settings.app_url, APPLICATION, CONNECTIONS, "use_utc"))
    core_api = Once(lambda: _core_api(settings))

    # Without an end: whatever breaks here must not leave requests behind that nobody delivers.
    @handlers.register(
        KIND,
        max_attempts=1000,
        backoff_seconds=1,
        backoff_max_seconds=60,
        timeout_seconds=120 + 2 * settings.core_api_timeout_seconds,
    )
    def deliver(run: HandlerRun) -> Any:
        receiver = core_api.get()
        with pool.get().connection() as conn:
            if receiver is None:
                with conn.transaction():
                    waiting = line.leave_next_run(conn, NOWHERE_SECONDS)
                return Skip("Requests wait: SUMACLOCK_CORE_API_URL is not set." if waiting else "Nothing is due.")
            tally = Sending(conn, receiver.send, settings, run.log, random.Random()).run(run.cancelled)  # noqa: S311
        if tally.attempts:
            return {"delivered": tally.done, "failed": tally.failed, "again": tally.again, "lost": tally.lost}
        return Skip("Another delivery run takes what is due." if tally.refused else "Nothing is due.")

    return handlers


def _core_api(settings: Settings) -> CoreApi | None:
    if settings.core_api_url is None:
        return None
    # httpx is slow to import, and a worker that delivers nothing starts without it.
    from sumaclock_dagster.outbox.core_api import CoreApi

    token = settings.core_api_token.get_secret_value() if settings.core_api_token else None
    return CoreApi(settings.core_api_url, token, settings.core_api_timeout_seconds, settings.core_api_concurrency)
