"""The processes that execute Dagster runs, as far as they can be seen from here."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from typing import Any, NamedTuple

import dagster as dg
import psutil  # type: ignore[import-untyped]

# Between a process's beginning and its first event lies the import of the user's code.
CLOCKS_DIFFER_SECONDS = 60.0
PID_NAMESPACE = "/proc/self/ns/pid"


class RunProcess(NamedTuple):
    """begun_at: when it said that the Dagster run begins (epoch seconds)."""

    pid: int
    begun_at: float


def this_machine() -> str:
    """Names the place within which a process's id is its own: a host and, on Linux, a namespace of processes."""
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink(PID_NAMESPACE)
    return f"{socket.gethostname()} {namespace}".strip()


def process_of(instance: dg.DagsterInstance, run_id: str) -> RunProcess | None:
    """The process that executes the Dagster run; None before it said so."""
    started = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.RUN_START, limit=1, ascending=False)
    for record in started.records:
        entry = record.event_log_entry
        if entry.dagster_event is not None and entry.dagster_event.pid is not None:
            return RunProcess(entry.dagster_event.pid, entry.timestamp)
    return None


def lives_here(process: RunProcess) -> bool:
    """Whether that process lives on this machine. A younger one has only inherited its number."""
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(process.pid)
        older = found.create_time() < process.begun_at + CLOCKS_DIFFER_SECONDS
        return bool(older and found.status() != psutil.STATUS_ZOMBIE)
    return False


def place_of(server: str) -> dict[str, Any]:
    """Where the code server listens, by the tag of Dagster runs that were launched in it: host and port, or socket.
    Empty where the tag, which anybody may write, says nothing of the kind."""
    with suppress(ValueError):
        place = json.loads(server)
        if isinstance(place, dict) and isinstance(place.get("port"), int) != isinstance(place.get("socket"), str):
            return place
    return {}


def is_seen(process: RunProcess, server: str) -> bool:
    """Whether it is certainly this machine's process that is meant, and no other machine's of the same number: it lives
    here, and below the code server that listens where it was launched. server: as for `place_of`."""
    if not lives_here(process):
        return False
    place = place_of(server)
    with suppress(psutil.Error):
        return any(_listens(parent, place) for parent in psutil.Process(process.pid).parents())
    return False


def _listens(process: psutil.Process, place: dict[str, Any]) -> bool:
    # Other users' processes do not tell.
    with suppress(psutil.Error):
        if place.get("socket"):
            return any(one.laddr == place["socket"] for one in process.net_connections(kind="unix"))
        listening = [one for one in process.net_connections(kind="tcp") if one.status == psutil.CONN_LISTEN]
        return any(one.laddr.port == place.get("port") for one in listening)
    return False
