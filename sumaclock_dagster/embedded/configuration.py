"""The private cluster's configuration files and URLs, as text."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from sumaclock_dagster.settings import CLUSTER_FILE

SUPERUSER = "postgres"
OWNER_ROLE = "sumaclock_owner"
APP_ROLE = "sumaclock_app"
DAGSTER_ROLE = "sumaclock_dagster"
APP_DATABASE = "sumaclock"
CRON_DATABASE = "postgres"
DAGSTER_DATABASE = "sumaclock_dagster"
ROLES = (SUPERUSER, OWNER_ROLE, APP_ROLE, DAGSTER_ROLE)
OWN_FILE = "sumaclock.conf"
INCLUDE = f"\n# Written anew at each start by sumaclock.\ninclude '{OWN_FILE}'\n"


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """What cluster.json holds. No secrets: access is by the operating system's user, over the socket."""

    database_url: str
    owner_database_url: str
    cron_database_url: str
    dagster_database_url: str
    superuser_url: str
    port: int
    socket_dir: str
    data_dir: str
    bin_dir: str


def cluster_file(port: int, socket_dir: Path, data_dir: Path, bin_dir: Path) -> ClusterFile:
    def url(role: str, database: str, scheme: str = "postgresql") -> str:
        where = urlencode({"host": str(socket_dir), "port": port}, quote_via=quote)
        return f"{scheme}://{quote(role)}@/{quote(database)}?{where}"

    return ClusterFile(
        database_url=url(APP_ROLE, APP_DATABASE),
        owner_database_url=url(OWNER_ROLE, APP_DATABASE),
        cron_database_url=url(APP_ROLE, CRON_DATABASE),
        dagster_database_url=url(DAGSTER_ROLE, DAGSTER_DATABASE, "postgresql+psycopg2"),
        superuser_url=url(SUPERUSER, CRON_DATABASE),
        port=port,
        socket_dir=str(socket_dir),
        data_dir=str(data_dir),
        bin_dir=str(bin_dir),
    )


def read_cluster_file(home: Path) -> ClusterFile | None:
    """What cluster.json in `home` says; None where it is missing, unreadable or of another shape."""
    try:
        return ClusterFile(**json.loads((home / CLUSTER_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def write_cluster_file(home: Path, file: ClusterFile) -> None:
    """Write cluster.json at one stroke, readable for the invoking user alone."""
    unfinished = home / f"{CLUSTER_FILE}.new"
    unfinished.write_text(json.dumps(asdict(file), indent=2) + "\n")
    unfinished.chmod(0o600)
    unfinished.replace(home / CLUSTER_FILE)


def server_settings(port: int, socket_dir: Path, extra: Mapping[str, str]) -> str:
    """The text of sumaclock.conf; `extra` comes last and wins."""
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": '"' + str(socket_dir).replace('"', '""') + '"',
        "unix_socket_permissions": "0700",
        "max_connections": "200",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] %q%u@%d %a ",
        "shared_preload_libraries": "pg_cron",
        "cron.database_name": CRON_DATABASE,
        # A login over the private socket needs no password, and connections beat background workers, which spin and
        # then fail jobs when their slots run out.
        "cron.host": str(socket_dir),
        "cron.use_background_workers": "off",
        "cron.max_running_jobs": "32",
        # A line in the log for each firing would be most of the log; cron.job_run_details has them.
        "cron.log_statement": "off",
        **extra,
    }
    lines = (f"{name} = '{_quoted(value)}'" for name, value in settings.items())
    return (
        "# Written anew at each start by sumaclock; put settings of your own into postgresql.conf, below the include.\n"
        + ("\n".join(lines) + "\n")
    )


def access_rules() -> str:
    """The text of pg_hba.conf: over the socket who the operating system says one is; over TCP a password, and no role
    has one until somebody sets it."""
    return (
        "# Written anew at each start by sumaclock.\n"
        "local all all peer map=sumaclock\n"
        "host all all 127.0.0.1/32 scram-sha-256\n"
    )


def access_map(users: Iterable[str], roles: Iterable[str]) -> str:
    """The text of pg_ident.conf: each of the operating system's `users` may be each of `roles`."""
    names = list(roles)
    rows = (f'sumaclock "{user}" "{role}"' for user in sorted(set(users)) for role in names)
    return "# Written anew at each start by sumaclock.\n" + "\n".join(rows) + "\n"


def usable_port(wanted: int | None) -> int:
    """`wanted` if nothing listens there on 127.0.0.1, or else a free port."""
    for port in (wanted, 0) if wanted else (0,):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As PostgreSQL does it: connections that linger from a server that has gone don't count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no free port on 127.0.0.1")


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")
