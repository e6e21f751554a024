"""Watching the queue and its workers from outside: look, and wait until more workers are wanted."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import PoolState
from sumaclock_dagster.queue import workers
from sumaclock_dagster.queue.workers import Released
from sumaclock_dagster.settings import Settings

LOOK_EVERY_SECONDS = 5.0
LOOK_AT_MOST_EVERY_SECONDS = 1.0
# No worker may show a sign of life for this long before runs count as silent: after a move of the database's clock, or
# a sleep of the machine, everything looks silent until the workers' next heartbeat.
ALONE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Look:
    """What one look saw and did. `wanted`: workers to launch now; `retired`: workers of other code told to retire."""

    state: PoolState
    wanted: int
    retired: int
    released: Released


def look(
    conn: Connection,
    settings: Settings,
    code_version: str,
    code_location: str | None = None,
    *,
    silent_too: bool = True,
) -> Look:
    """Release what dead workers hold, retire workers of other code, and see how many workers to launch.

    Workers of another `code_location` than this one stay. Runs without a sign of life are the workers' own affair;
    while none lives, and with `silent_too`, they are released here.
    """
    released = workers.release_dead(conn, settings)
    retired = workers.retire_old_code(conn, code_version, code_location)
    state = workers.pool_state(conn, settings)
    if silent_too and state.live == 0:
        silent = workers.release_silent(conn, settings)
        released = Released(released.pending + silent.pending, released.failed + silent.failed)
    return Look(state, workers.workers_wanted(state, settings), retired, released)


def watch(
    conn: Connection, settings: Settings, code_version: str, seconds: float, code_location: str | None = None
) -> Look:
    """Look until workers are wanted, for `seconds` at most, and return the last look, its counts of retired workers
    and released runs summed up. Looks again when runs or workers notify, at most once a second, and every 5 seconds.
    """
    conn.execute(query("listen_to_queue"))
    alone_since = monotonic()
    until = alone_since + seconds
    retired = pending = failed = 0
    while True:
        looked_at = monotonic()
        seen = look(conn, settings, code_version, code_location, silent_too=looked_at - alone_since >= ALONE_SECONDS)
        if seen.state.live:
            alone_since = looked_at
        retired, pending, failed = (
            retired + seen.retired,
            pending + seen.released.pending,
            failed + seen.released.failed,
        )
        if seen.wanted > 0 or monotonic() >= until:
            return Look(seen.state, seen.wanted, retired, Released(pending, failed))
        _wait(conn, min(looked_at + LOOK_EVERY_SECONDS, until), looked_at + LOOK_AT_MOST_EVERY_SECONDS)


def _wait(conn: Connection, until: float, not_before: float) -> None:
    """Wait for a notification until `until`, then let those of the same burst arrive until `not_before`."""
    for _ in conn.notifies(timeout=max(0.0, until - monotonic()), stop_after=1):
        pass
    for _ in conn.notifies(timeout=max(0.0, not_before - monotonic())):
        pass
