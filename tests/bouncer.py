"""A real PgBouncer in front of the test cluster."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretStr

from sumaclock_dagster.embedded.configuration import usable_port
from sumaclock_dagster.embedded.places import server_user
from tests.conftest import AppDatabase, TestCluster
from tests.waiting import until

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
WHY_SKIPPED = "PgBouncer is not installed (Debian package pgbouncer; bin/test installs it)"


@contextmanager
def bouncer(cluster: TestCluster, role: str, **settings: str) -> Iterator[int]:
    """Run PgBouncer with `settings` ([pgbouncer] section) for `role`; yields its port on 127.0.0.1.

    It runs as the server's own user, whom the cluster lets in as any of its roles."""
    assert PROGRAM is not None
    user = server_user(Path(cluster.file.data_dir))
    port = usable_port(None)
    folder = Path(tempfile.mkdtemp(prefix="sumaclock-bouncer-"))
    lines = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(port),
        "unix_socket_dir": "",
        "auth_type": "trust",
        "auth_file": str(folder / "users"),
        "ignore_startup_parameters": "options",
        **settings,
    }
    (folder / "users").write_text(f'"{role}" ""\n')
    (folder / "bouncer.ini").write_text(
        f"[databases]\n* = host={cluster.file.socket_dir} port={cluster.file.port}\n[pgbouncer]\n"
        + "".join(f"{name} = {value}\n" for name, value in lines.items())
    )
    for path in (folder, *folder.iterdir()):
        user.own(path)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, str(folder / "bouncer.ini")], stdout=log, stderr=log, cwd="/", **user.switch
        )
    try:
        until(lambda: process.poll() is not None or _answers(port), 10, "PgBouncer to listen")
        assert process.poll() is None, (folder / "log").read_text()
        yield port
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder)


def through(app_db: AppDatabase, role: str, port: int) -> AppDatabase:
    """The same app database, its app and cron URL leading through the pooler at `port`."""
    url = f"postgresql://{role}@127.0.0.1:{port}/{app_db.name}"
    settings = app_db.settings.model_copy(
        update={"database_url": SecretStr(url), "cron_database_url": SecretStr(url.replace(app_db.name, "postgres"))}
    )
    return AppDatabase(app_db.name, url, app_db.owner_url, app_db.cron_url, app_db.superuser_url, settings)


def _answers(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0
