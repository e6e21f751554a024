"""Is a process of the stack ready? Asked over loopback, as a browser or Dagster itself would."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable
from typing import Any

from sumaclock_dagster.embedded.dagster_home import LOCATION, DagsterHome
from sumaclock_dagster.embedded.ui_port import HOST

TIMEOUT_SECONDS = 5.0
LOCATIONS = """
{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus
    locationOrLoadError { __typename ... on PythonError { message } } } } } }
"""
HEARTBEATS = "{ instance { daemonHealth { allDaemonStatuses { daemonType required lastHeartbeatTime } } } }"


def code_server_listens(home: DagsterHome) -> bool:
    """It opens its port only after it has loaded the definitions."""
    try:
        socket.create_connection((HOST, home.code_server_port), TIMEOUT_SECONDS).close()
    except OSError:
        return False
    return True


def location_loaded(home: DagsterHome) -> bool:
    """The webserver answers and has the code location, so that the UI's first page shows it."""
    answer = _graphql(home, LOCATIONS)
    entries = _dig(answer, "workspaceOrError", "locationEntries") or []
    return any(
        entry["name"] == LOCATION and (entry["locationOrLoadError"] or {}).get("__typename") == "RepositoryLocation"
        for entry in entries
    )


def daemon_beats(home: DagsterHome, since: float) -> bool:
    """Its sensor and schedule loops have gone round since `since` (seconds since the epoch)."""
    statuses = _dig(_graphql(home, HEARTBEATS), "instance", "daemonHealth", "allDaemonStatuses") or []
    beating = {status["daemonType"] for status in statuses if (status["lastHeartbeatTime"] or 0) >= since}
    return {"SENSOR", "SCHEDULER"} <= beating


def ready_checks(home: DagsterHome, since: float) -> list[tuple[str, Callable[[], bool]]]:
    """What must be true, in words, before the stack is ready."""
    return [
        ("the UI", lambda: location_loaded(home)),
        ("the daemon", lambda: daemon_beats(home, since)),
    ]


def _graphql(home: DagsterHome, question: str) -> Any:
    """The answer's data; None while there is none. http.client knows no proxies, which loopback must not go through."""
    connection = http.client.HTTPConnection(HOST, home.webserver_port, timeout=TIMEOUT_SECONDS)
    try:
        body = json.dumps({"query": question})
        connection.request("POST", "/graphql", body, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read()).get("data")
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _dig(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
