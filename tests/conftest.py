"""A private cluster for the whole session, and a fresh database of it for each test that asks."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from xdist.scheduler import LoadGroupScheduling

from sumaclock_dagster.db import Connection, connect, with_database
from sumaclock_dagster.embedded.binaries import Binaries, find_binaries
from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.embedded.configuration import ClusterFile
from sumaclock_dagster.embedded.creation import run_first_boot
from sumaclock_dagster.embedded.places import Say, silent
from sumaclock_dagster.migrate import load_migrations, migrate
from sumaclock_dagster.settings import Settings

PREFIX = "sumaclock-test-"
# Lost with the machine, which is what tests want; everything else is as users have it.
TEST_SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}
# pg_cron fails a job that finds no free one.
ENOUGH_WORKERS = {"cron.use_background_workers": "on", "max_worker_processes": "64"}
MEMORY = Path("/dev/shm")  # noqa: S108
PLENTY_BYTES = 8 * 2**30
NEIGHBOUR = "neighbour"
TEMPLATE = "t_template"
# Files about Dagster's pages and the command line. What they ask of PostgreSQL, other tests ask of every version.
WINDOW = (
    *("test_alerts", "test_browser", "test_cli_", "test_defs", "test_edit_schedules", "test_example", "test_once_cli"),
    *("test_faults_in_stack", "test_slots_cli", "test_system_jobs_seen", "test_targets_e2e", "test_targets_lost"),
    *("test_targets_many", "test_targets_sensor"),
)
PG_BIN = "SUMACLOCK_PG_BIN"
# Set to anything, it lets pg_cron run commands in background workers instead of in connections.
BACKGROUND_WORKERS = "SUMACLOCK_TEST_BACKGROUND_WORKERS"


@dataclass(frozen=True)
class TestCluster:
    """home: of the private cluster. file: its URLs."""

    __test__ = False

    private: PrivateCluster
    home: Path
    file: ClusterFile
    binaries: Binaries


@dataclass(frozen=True)
class AppDatabase:
    """A migrated app database and the ways into it. `settings`: a Settings that says the same."""

    name: str
    app_url: str
    owner_url: str
    cron_url: str
    superuser_url: str
    settings: Settings


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest come first: with several processes, the others have something to do meanwhile. Whole
    stacks take longest, then what waits for its minute, then what may take more time than other tests."""
    for name in ("timeout", "firing", "stack", "xdist_group"):
        first = {item.path for item in items if item.get_closest_marker(name)}
        items.sort(key=lambda item, first=first: item.path not in first)  # type: ignore[misc]
    for item in items:
        if item.get_closest_marker("stack"):
            item.add_marker(pytest.mark.xdist_group("stack"))
        if needs_database(item):
            item.add_marker(pytest.mark.database)
        if item.path.name.startswith(WINDOW):
            item.add_marker(pytest.mark.window)


def pytest_report_header() -> str:
    found = find_binaries(chosen_pg_bin())
    how = "in background workers" if os.environ.get(BACKGROUND_WORKERS) else "over connections"
    return f"PostgreSQL {found.major} in {found.bin_dir}, pg_cron fires {how}"


def needs_database(item: pytest.Item) -> bool:
    """Whether the test uses the session's cluster, or its file makes clusters of its own."""
    return "cluster" in getattr(item, "fixturenames", ()) or hasattr(getattr(item, "module", None), "PrivateCluster")


class FilesStayTogether(LoadGroupScheduling):
    """Gives each process whole files, whose fixtures are then made once, or a group of tests that name one."""

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if group == nodeid else group

    def schedule(self) -> None:
        begun = self.collection is not None
        super().schedule()
        if begun:
            # A process in the place of one that crashed: it runs its last test only when it has got more, or the end.
            super().schedule()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesStayTogether:
    return FilesStayTogether(config, log)


@pytest.fixture(scope="session", autouse=True)
def _plain_environment() -> None:
    """Tests see no settings of the machine they run on."""
    for name in [name for name in os.environ if name.startswith(("SUMACLOCK_", "PG", "DAGSTER_"))]:
        if name not in (PG_BIN, BACKGROUND_WORKERS):
            del os.environ[name]


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    return find_binaries(chosen_pg_bin())


@pytest.fixture(scope="session")
def cluster(_plain_environment: None) -> Iterator[TestCluster]:
    """A private cluster with pg_cron, removed at the end. The role `neighbour` may log in, but is not made here."""
    _remove_abandoned()
    home = new_home()
    private = new_cluster(home)
    try:
        file = private.start()
        yield TestCluster(private, home, file, find_binaries(Path(file.bin_dir)))
    finally:
        remove_cluster(private)


@pytest.fixture
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    """A fresh app database as first_boot.sql and the migrations make it, dropped with its clock jobs at the end."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        yield make_app_database(cluster, name)
    finally:
        drop_app_database(cluster, name)


@pytest.fixture
def app(app_db: AppDatabase) -> Iterator[Connection]:
    """An open autocommit connection of the app role to `app_db`."""
    with connect(app_db.app_url, "test app") as conn:
        yield conn


@pytest.fixture
def superuser(app_db: AppDatabase) -> Iterator[Connection]:
    """An open autocommit connection of the superuser to `app_db`."""
    with connect(app_db.superuser_url, "test superuser") as conn:
        yield conn


def make_app_database(cluster: TestCluster, name: str) -> AppDatabase:
    """A copy of the cluster's template, which is made once, brought up to date as a new one is: a copy costs a fraction
    of the migrations, and first_boot.sql gives it the rights and settings that no copy has."""
    with connect(cluster.file.superuser_url, "test create") as conn:
        if conn.execute("select from pg_database where datname = %s", [TEMPLATE]).fetchone() is None:
            _bring_up_to_date(cluster, TEMPLATE)
        conn.execute(f'create database "{name}" template {TEMPLATE}')
        # First_boot.sql does so in a database that it makes itself.
        conn.execute(f'revoke all on database "{name}" from public')
    return _bring_up_to_date(cluster, name)


def _bring_up_to_date(cluster: TestCluster, name: str) -> AppDatabase:
    run_first_boot(cluster.binaries, cluster.file.superuser_url, {"app_db": name})
    app_db = describe_app_database(cluster, name)
    with connect(app_db.owner_url, "test migrate") as conn:
        migrate(conn, load_migrations())
    return app_db


def describe_app_database(cluster: TestCluster, name: str) -> AppDatabase:
    file = cluster.file
    app_url = with_database(file.database_url, name)
    owner_url = with_database(file.owner_database_url, name)
    settings = Settings(
        home=cluster.home,
        database_url=app_url,
        owner_database_url=owner_url,
        cron_database_url=file.cron_database_url,
        dagster_database_url=file.dagster_database_url,
    )
    return AppDatabase(
        name, app_url, owner_url, file.cron_database_url, with_database(file.superuser_url, name), settings
    )


def drop_app_database(cluster: TestCluster, name: str) -> None:
    with connect(cluster.file.superuser_url, "test clean-up") as conn:
        conn.execute(
            "delete from cron.job where database = %s or starts_with(jobname::text, %s)", [name, f"{name}:system:"]
        )
        # Firings that are under way hold connections; FORCE ends them.
        conn.execute(f'drop database if exists "{name}" with (force)')


def chosen_pg_bin() -> Path | None:
    """The PostgreSQL that whoever runs the tests wants them to use."""
    return Path(os.environ[PG_BIN]) if os.environ.get(PG_BIN) else None


def new_home() -> Path:
    """A folder for a private cluster, marked with our process so that a later session can clean up after a crash."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_place_for_clusters()))
    folder.chmod(0o711)
    (folder / "pid").write_text(str(os.getpid()))
    return folder


def _place_for_clusters() -> Path:
    """In memory, where there is plenty: hundreds of files a database take a disk's file system ten times as long."""
    if MEMORY.is_dir() and min(psutil.disk_usage(str(MEMORY)).free, psutil.virtual_memory().available) >= PLENTY_BYTES:
        return MEMORY
    return Path(tempfile.gettempdir())


def new_cluster(home: Path, say: Say = silent) -> PrivateCluster:
    settings = TEST_SETTINGS | (ENOUGH_WORKERS if os.environ.get(BACKGROUND_WORKERS) else {})
    return PrivateCluster(home, say=say, pg_bin=chosen_pg_bin(), extra_settings=settings, extra_roles=(NEIGHBOUR,))


def remove_cluster(private: PrivateCluster) -> None:
    try:
        private.stop(fast_seconds=10)
    finally:
        shutil.rmtree(private.home, ignore_errors=True)


def _remove_abandoned() -> None:
    for folder in [*Path(tempfile.gettempdir()).glob(f"{PREFIX}*"), *MEMORY.glob(f"{PREFIX}*")]:
        try:
            alive = psutil.pid_exists(int((folder / "pid").read_text())) or folder.stat().st_uid != os.geteuid()
        except (OSError, ValueError):
            continue
        if not alive:
            remove_cluster(PrivateCluster(folder))
