"""Dagster runs whose process is gone though Dagster calls them STARTED: found, and reported to Dagster as failed.

Dagster's own code server notices a process that dies under it. What remains is a process that died with its server or
its machine. A Dagster run is never called lost because it is silent while somebody says that it lives: a long step
writes no events.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import dagster as dg
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher import WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.client import DagsterGrpcClient
from dagster._grpc.types import CanCancelExecutionRequest, CanCancelExecutionResult, GetCurrentRunsResult
from dagster._serdes import deserialize_value

from sumaclock_dagster.defs.run_processes import lives_here, place_of, process_of
from sumaclock_dagster.settings import Settings

UNDER_WAY = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
# A server that is busy answers later; that nobody answers proves nothing.
ANSWER_SECONDS = 3
NO_SIGN = "It gave no sign of life for {seconds:.0f} s, and {why}."


class Server(NamedTuple):
    """What a code server says. alive: ids of Dagster runs that it executes. complete: it executes no others."""

    alive: frozenset[str]
    complete: bool


class Verdict(NamedTuple):
    """It is lost once it has been silent for `seconds`, because `why`."""

    seconds: float
    why: str


NOBODY = Server(frozenset(), complete=False)


def report_lost(
    instance: dg.DagsterInstance, runs: Sequence[dg.DagsterRun], seen: Collection[str], settings: Settings, now: float
) -> int:
    """Report to Dagster the end of those of `runs` whose process is gone. Returns how many.

    runs: under way as far as Dagster knows. seen: ids of those whose process can only be on this machine. now: epoch
    seconds.
    """
    by_server: dict[str, list[dg.DagsterRun]] = {}
    for run in runs:
        by_server.setdefault(run.tags.get(GRPC_INFO_TAG, ""), []).append(run)
    lost = 0
    for address, of_server in by_server.items():
        server = _ask(address, [run.run_id for run in of_server]) if address else NOBODY
        for run in of_server:
            if run.run_id not in server.alive:
                lost += _report_if_lost(instance, run, server, run.run_id in seen, settings, now)
    return lost


def _report_if_lost(
    instance: dg.DagsterInstance, run: dg.DagsterRun, server: Server, seen: bool, settings: Settings, now: float
) -> bool:
    silent = now - _last_event_at(instance, run.run_id)
    if silent < settings.dagster_lost_seconds:
        return False
    verdict = _judge(instance, run, server, seen, settings)
    if verdict is None or silent < verdict.seconds:
        return False
    # It may have ended while it was judged.
    latest = instance.get_run_by_id(run.run_id)
    if latest is None or latest.status not in UNDER_WAY:
        return False
    reason = NO_SIGN.format(seconds=silent, why=verdict.why)
    if latest.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(latest, reason)
    else:
        instance.report_run_failed(latest, reason)
    return True


def _judge(
    instance: dg.DagsterInstance, run: dg.DagsterRun, server: Server, seen: bool, settings: Settings
) -> Verdict | None:
    """How long the run may be silent, and why it is lost then. None: it lives, or Dagster itself looks after it."""
    ignorant = Verdict(settings.dagster_silent_seconds, "nobody can tell whether it lives")
    if GRPC_INFO_TAG not in run.tags:
        return _ask_launcher(instance, run, ignorant, settings)
    process = process_of(instance, run.run_id)
    if process is not None and lives_here(process):
        return None
    if process is not None and seen:
        return Verdict(settings.dagster_lost_seconds, f"its process {process.pid} is gone")
    if server.complete:
        return Verdict(settings.lease_seconds, "the code server that executed it knows nothing of it any more")
    return ignorant


def _ask_launcher(
    instance: dg.DagsterInstance, run: dg.DagsterRun, ignorant: Verdict, settings: Settings
) -> Verdict | None:
    """What a launcher says that can look at what it launched."""
    try:
        launcher = instance.run_launcher
        if not launcher.supports_check_run_worker_health:
            return ignorant
        if instance.run_monitoring_enabled:
            return None
        health = launcher.check_run_worker_health(run)
    except Exception:  # noqa: BLE001  (it may need rights, or a package, that only the daemon has)
        return ignorant
    if health.status in (WorkerStatus.NOT_FOUND, WorkerStatus.FAILED):
        return Verdict(settings.dagster_lost_seconds, f"its run launcher says {health}")
    return ignorant if health.status is WorkerStatus.UNKNOWN else None


def _ask(address: str, run_ids: Sequence[str]) -> Server:
    """What the code server says that the Dagster runs were launched in; `NOBODY` where none answers."""
    place = place_of(address)
    if not place:
        return NOBODY
    try:
        client = DagsterGrpcClient(
            host=str(place.get("host", "localhost")),
            port=place.get("port"),
            socket=place.get("socket"),
            use_ssl=bool(place.get("use_ssl")),
        )
        alive = frozenset(run_id for run_id in run_ids if _executes(client, run_id))
    except DagsterUserCodeUnreachableError:
        return NOBODY
    try:
        everything = deserialize_value(client.get_current_runs(), GetCurrentRunsResult).current_runs
    except DagsterUserCodeUnreachableError:
        # A server that reloads its code knows only of those that its newest code executes, and refuses to list them.
        return Server(alive, complete=False)
    return Server(alive.union(everything), complete=True)


def _executes(client: DagsterGrpcClient, run_id: str) -> bool:
    answer = client.can_cancel_execution(CanCancelExecutionRequest(run_id=run_id), timeout=ANSWER_SECONDS)
    return deserialize_value(answer, CanCancelExecutionResult).can_cancel


def _last_event_at(instance: dg.DagsterInstance, run_id: str) -> float:
    records = instance.get_records_for_run(run_id, limit=1, ascending=False).records
    return records[0].event_log_entry.timestamp if records else 0.0
