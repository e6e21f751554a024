"""Requests to core-api: written in the transaction of the work that wants them, delivered at least once.

`jobs` writes them, `handler` registers the kind whose runs deliver them. Two tables are this package's own:
`core_api_jobs` and `core_api_line`.
"""

from sumaclock_dagster.outbox.jobs import queue_delivery, revive_delivery

__all__ = ["queue_delivery", "revive_delivery"]
