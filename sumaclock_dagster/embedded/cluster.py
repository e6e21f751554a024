"""The private cluster under SUMACLOCK_HOME: make, start, stop, look."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sumaclock_dagster.db import Connection, connect, query
from sumaclock_dagster.embedded.binaries import Binaries, find_binaries
from sumaclock_dagster.embedded.configuration import (
    OWN_FILE,
    ROLES,
    ClusterFile,
    access_map,
    access_rules,
    cluster_file,
    read_cluster_file,
    server_settings,
    usable_port,
    write_cluster_file,
)
from sumaclock_dagster.embedded.creation import create_data_dir, data_version, run_first_boot, server_environment
from sumaclock_dagster.embedded.places import Places, Say, ServerUser, choose_places, make_private, silent, user_name
from sumaclock_dagster.embedded.postmaster import (
    clear_after_crash,
    find_postmaster,
    is_alive,
    log_tail,
    read_address,
    start_postmaster,
    stop_postmaster,
    wait_until_accepting,
)
from sumaclock_dagster.migrate import load_migrations, migrate
from sumaclock_dagster.model import SumaclockError

START_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """`pid` is None when the server is not running; `file` is None before the first start has ended well."""

    exists: bool
    pid: int | None
    file: ClusterFile | None


class PrivateCluster:
    """A PostgreSQL cluster with pg_cron in `home`, for this project alone.

    pg_bin: a bin folder to use instead of searching for one.
    extra_settings: settings for the server that win over ours.
    extra_roles: database roles besides ours that may log in over the socket.
    say: told each step in words.
    """

    def __init__(
        self,
        home: Path,
        *,
        say: Say = silent,
        pg_bin: Path | None = None,
        extra_settings: Mapping[str, str] | None = None,
        extra_roles: tuple[str, ...] = (),
    ) -> None:
        self.home = home.absolute()
        self._say = say
        self._pg_bin = pg_bin
        self._extra_settings = dict(extra_settings or {})
        self._roles = (*ROLES, *extra_roles)
        self._server: subprocess.Popen[bytes] | None = None

    def start(self, timeout_seconds: float = 120) -> ClusterFile:
        """Make the cluster if there is none, start it if it does not run, bring roles, databases and schema up to date,
        and write cluster.json. Raises SumaclockError."""
        try:
            places, user = choose_places(self.home, self._say)
            with self._alone(places):
                return self._start(places, user, timeout_seconds)
        except OSError as error:
            raise SumaclockError(f"The private cluster in {self.home} can't be started: {error}") from error

    def _start(self, places: Places, user: ServerUser, timeout_seconds: float) -> ClusterFile:
        version = data_version(places.data_dir)
        binaries = find_binaries(self._pg_bin, major=version)
        if version is None:
            self._create(binaries, places, user)
        file = self._running(places, binaries, timeout_seconds) or self._launch(binaries, places, user, timeout_seconds)
        self._bring_up_to_date(binaries, file)
        write_cluster_file(self.home, file)
        return file

    def stop(self, fast_seconds: float = 30) -> bool:
        """Stop the server of this home, whoever started it. False when it was not running. Raises SumaclockError."""
        if not self.home.exists():
            return False
        places, _ = choose_places(self.home, silent)
        with self._alone(places):
            process = find_postmaster(places.data_dir)
            if process is None:
                return False
            self._say("Stopping PostgreSQL")
            stop_postmaster(process, fast_seconds)
            if self._server is not None:
                self._server.wait()
        return True

    def status(self) -> ClusterStatus:
        """What there is, without changing anything but an empty home."""
        if not self.home.exists():
            return ClusterStatus(False, None, None)
        places, _ = choose_places(self.home, silent)
        process = find_postmaster(places.data_dir)
        exists = data_version(places.data_dir) is not None
        return ClusterStatus(exists, process.pid if process else None, read_cluster_file(self.home))

    @contextmanager
    def _alone(self, places: Places) -> Iterator[None]:
        # Two at once would both initialise, or start what the other is stopping.
        with (places.home / "cluster.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say("Waiting for another process that starts or stops this cluster")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _create(self, binaries: Binaries, places: Places, user: ServerUser) -> None:
        self._say(f"Creating a private PostgreSQL {binaries.major} cluster in {places.data_dir}")
        create_data_dir(binaries, places.data_dir, user, sync=self._extra_settings.get("fsync") != "off")

    def _running(self, places: Places, binaries: Binaries, timeout_seconds: float) -> ClusterFile | None:
        process = find_postmaster(places.data_dir)
        if process is None:
            return None
        port, socket_dir = read_address(places.data_dir)
        if not (socket_dir / f".s.PGSQL.{port}").exists():
            # Cleaners of temporary folders take sockets along; only a restart brings one back.
            self._say(f"PostgreSQL has lost its socket in {socket_dir}: restarting it")
            stop_postmaster(process, fast_seconds=30)
            return None
        self._say(f"PostgreSQL is running already (process {process.pid})")
        file = cluster_file(port, socket_dir, places.data_dir, binaries.bin_dir)
        # False: it was just shutting down.
        return file if wait_until_accepting(process.is_running, file.superuser_url, timeout_seconds) else None

    def _launch(self, binaries: Binaries, places: Places, user: ServerUser, timeout_seconds: float) -> ClusterFile:
        self._say("Starting PostgreSQL")
        make_private(places.socket_dir, user)
        clear_after_crash(places.data_dir, places.socket_dir)
        before = read_cluster_file(self.home)
        wanted = before.port if before else None
        for _ in range(START_ATTEMPTS):
            port = usable_port(wanted)
            self._configure(places, user, port)
            log_start = places.log_file.stat().st_size if places.log_file.exists() else 0
            server = self._server = start_postmaster(
                binaries.program("postgres"), places.data_dir, places.log_file, user, server_environment()
            )
            file = cluster_file(port, places.socket_dir, places.data_dir, binaries.bin_dir)
            if wait_until_accepting(is_alive(server), file.superuser_url, timeout_seconds):
                return file
            # Somebody may have taken the port between the look and the start.
            if usable_port(port) == port:
                break
            wanted = None
        raise SumaclockError(
            f"PostgreSQL did not start. The end of {places.log_file}:\n{log_tail(places.log_file, log_start)}"
        )

    def _configure(self, places: Places, user: ServerUser, port: int) -> None:
        texts = {
            OWN_FILE: server_settings(port, places.socket_dir, self._extra_settings),
            "pg_hba.conf": access_rules(),
            "pg_ident.conf": self._access_map(user, ()),
        }
        for name, text in texts.items():
            path = places.data_dir / name
            path.write_text(text)
            user.own(path)
            path.chmod(0o600)

    def _access_map(self, user: ServerUser, more_roles: Iterable[str]) -> str:
        # Root may become any of them anyway; named here, a `sudo` needs no restart.
        users = (user.name, user_name(os.geteuid()), "root")
        return access_map(users, dict.fromkeys((*self._roles, *more_roles)))

    def _bring_up_to_date(self, binaries: Binaries, file: ClusterFile) -> None:
        self._say("Bringing roles, databases and schema up to date")
        run_first_boot(binaries, file.superuser_url)
        with connect(file.superuser_url, "sumaclock start") as conn:
            where = {"host": file.socket_dir, "port": file.port}
            while conn.execute(query("move_clock_jobs"), where).rowcount:
                pass
        with connect(file.owner_database_url, "sumaclock migrate") as conn:
            for name in migrate(conn, load_migrations()):
                self._say(f"Migration {name} applied")
        with connect(file.superuser_url, "sumaclock start") as conn:
            self.admit_roles(conn)

    def admit_roles(self, superuser: Connection) -> None:
        """Let each role that may log in do so over the socket, for whoever may be a superuser there anyway: pg_cron
        logs in as the role whose one-off commands it runs. Raises OSError."""
        places, user = choose_places(self.home, silent)
        found = [row[0] for row in superuser.execute(query("list_login_roles")).fetchall()]
        text = self._access_map(user, found)
        path = places.data_dir / "pg_ident.conf"
        if path.read_text() != text:
            # In place: at no moment is it half there for long, and the server reads it only when told.
            path.write_text(text)
            superuser.execute(query("reload_configuration"))
