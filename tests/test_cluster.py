"""The private cluster: made, started, stopped and mended on real PostgreSQL, wherever its home is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import psycopg
import pytest

from sumaclock_dagster.db import connect
from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.embedded.places import SYSTEM_HOME, choose_places, silent
from sumaclock_dagster.embedded.postmaster import find_postmaster
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.settings import Settings
from tests.conftest import TestCluster, new_cluster, new_home, remove_cluster
from tests.waiting import until

STARTER = """
import sys
from pathlib import Path
from tests.conftest import new_cluster
sys.stdin.readline()
print(new_cluster(Path(sys.argv[1])).start().port)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A home for a cluster of one test's own; the cluster is removed at the end."""
    folder = new_home()
    yield folder
    _remove(folder)


@pytest.fixture
def running(home: Path) -> PrivateCluster:
    private = new_cluster(home)
    private.start()
    return private


def _remove(home: Path) -> None:
    places, _ = choose_places(home, silent)
    remove_cluster(new_cluster(home))
    if places.data_dir.parent != home:
        shutil.rmtree(places.data_dir.parent)
        with suppress(OSError):  # other homes have data there
            SYSTEM_HOME.rmdir()
    if places.socket_dir.parent != places.data_dir.parent:
        shutil.rmtree(places.socket_dir, ignore_errors=True)


def _answers(private: PrivateCluster) -> bool:
    file = private.status().file
    assert file is not None
    with connect(file.database_url, "test") as conn:
        return bool(conn.execute("select count(*) from sumaclock.cron_jobs").fetchall() == [(0,)])


def _pid(private: PrivateCluster) -> int:
    pid = private.status().pid
    assert pid is not None
    return pid


def test_cluster_json_says_how_to_get_in_and_only_we_may_read_it(cluster: TestCluster) -> None:
    path = cluster.home / "cluster.json"
    said = json.loads(path.read_text())
    assert set(said) == {
        "database_url",
        "owner_database_url",
        "cron_database_url",
        "dagster_database_url",
        "superuser_url",
        "port",
        "socket_dir",
        "data_dir",
        "bin_dir",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    settings = Settings(home=cluster.home)
    assert (settings.app_url, settings.dagster_url) == (said["database_url"], said["dagster_database_url"])
    assert all("password" not in str(value) and ":" not in urlsplit(str(value)).netloc for value in said.values())


def test_each_url_opens_what_it_says(cluster: TestCluster) -> None:
    file = cluster.file
    urls = (file.database_url, file.owner_database_url, file.cron_database_url, file.superuser_url)
    dagster = file.dagster_database_url.replace("postgresql+psycopg2://", "postgresql://")
    found = []
    for url in (*urls, dagster):
        with connect(url, "test") as conn:
            found.append(conn.execute("select current_user::text, current_database()::text").fetchall()[0])
    assert found == [
        ("sumaclock_app", "sumaclock"),
        ("sumaclock_owner", "sumaclock"),
        ("sumaclock_app", "postgres"),
        ("postgres", "postgres"),
        ("sumaclock_dagster", "sumaclock_dagster"),
    ]


def test_the_server_is_ours_alone(cluster: TestCluster) -> None:
    with connect(cluster.file.superuser_url, "test") as conn:
        names = ("listen_addresses", "timezone", "log_timezone", "server_encoding", "data_checksums", "cron.host")
        shown = {name: conn.execute("select current_setting(%s)", [name]).fetchall()[0][0] for name in names}
    assert shown == {
        "listen_addresses": "127.0.0.1",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "server_encoding": "UTF8",
        "data_checksums": "on",
        "cron.host": cluster.file.socket_dir,
    }
    for folder in (cluster.file.data_dir, cluster.file.socket_dir):
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    pid = _pid(cluster.private)
    assert psutil.Process(pid).uids().effective != 0
    assert os.getsid(pid) != os.getsid(0)


def test_over_tcp_nobody_gets_in_without_a_password(cluster: TestCluster) -> None:
    for role in ("postgres", "sumaclock_app"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(
                host="127.0.0.1", port=cluster.file.port, user=role, dbname="postgres", passfile="/dev/null"
            )


def test_another_user_of_the_machine_gets_in_nowhere(cluster: TestCluster) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can try as another user")
    done = subprocess.run(
        [cluster.binaries.program("psql"), "-X", "-d", cluster.file.superuser_url, "-c", "select 1"],
        user="nobody",
        group="nogroup",
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Permission denied" in done.stderr


def test_a_second_start_takes_the_running_one_and_a_restart_keeps_all(running: PrivateCluster) -> None:
    file, pid = running.status().file, _pid(running)
    assert file is not None
    with connect(file.database_url, "test") as conn:
        conn.execute("insert into sumaclock.workers (code_version) values ('kept')")
    again = new_cluster(running.home)
    assert again.start() == file
    assert _pid(again) == pid
    assert again.stop()
    assert not again.stop()
    assert running.status().pid is None
    assert running.start() == file
    with connect(file.database_url, "test") as conn:
        assert conn.execute("select code_version from sumaclock.workers").fetchall() == [("kept",)]


def test_what_it_says_on_the_way(home: Path) -> None:
    said: list[str] = []
    private = new_cluster(home, said.append)
    private.start()
    private.stop()
    assert [text.split(" ", 1)[0] for text in said[:4]] == ["Creating", "Starting", "Bringing", "Migration"]
    assert said[-1] == "Stopping PostgreSQL"


def test_four_starts_at_once_make_one_server(home: Path) -> None:
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", STARTER, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        for _ in range(4)
    ]
    for starter in starters:
        assert starter.stdin is not None
        starter.stdin.write("go\n")
        starter.stdin.flush()
    ports = [starter.communicate(timeout=120)[0].strip() for starter in starters]
    assert [starter.returncode for starter in starters] == [0, 0, 0, 0]
    assert len(set(ports)) == 1
    assert _answers(new_cluster(home))


def test_after_kill_9_it_starts_again(running: PrivateCluster) -> None:
    pid = _pid(running)
    os.kill(pid, signal.SIGKILL)
    until(lambda: running.status().pid is None, 10, "the killed server to be seen as gone")
    running.start()
    assert _pid(running) != pid
    assert _answers(running)


def test_a_process_id_that_somebody_else_has_now_is_not_taken_for_ours(running: PrivateCluster) -> None:
    file = running.status().file
    assert file is not None
    pid_file = Path(file.data_dir) / "postmaster.pid"
    os.kill(_pid(running), signal.SIGKILL)
    until(lambda: running.status().pid is None, 10, "the killed server to be seen as gone")
    lines = pid_file.read_text().splitlines()
    with subprocess.Popen(["sleep", "300"], cwd="/", start_new_session=True) as stranger:
        try:
            pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
            assert find_postmaster(Path(file.data_dir)) is None
            assert not running.stop()
            running.start()
            assert stranger.poll() is None
        finally:
            stranger.kill()
    assert _answers(running)


def test_a_port_that_was_taken_is_left_and_clock_jobs_move_along(running: PrivateCluster) -> None:
    before = running.status().file
    assert before is not None
    with connect(before.cron_database_url, "test") as conn:
        # "@reboot" fires whenever pg_cron starts, so nobody has to wait for the minute.
        conn.execute(
            "select cron.schedule_in_database('sumaclock:cron:x', '@reboot', %s, 'sumaclock')",
            ["insert into sumaclock.workers (code_version) values (current_setting('port') || ' ' || current_user)"],
        )
    running.stop()
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", before.port))
        squatter.listen()
        after = running.start()
        assert after.port != before.port
        assert running.status().file == after
    with connect(after.cron_database_url, "test") as conn:
        places = conn.execute("select distinct nodename, nodeport from cron.job").fetchall()
        assert places == [(after.socket_dir, after.port)]
    running.stop()
    running.start()
    with connect(after.database_url, "test") as conn:
        until(
            lambda: (
                (f"{after.port} sumaclock_app",)
                in conn.execute("select code_version from sumaclock.workers").fetchall()
            ),
            20,
            "a firing over the new port",
        )


def test_a_lost_socket_is_mended(running: PrivateCluster) -> None:
    file = running.status().file
    assert file is not None
    shutil.rmtree(file.socket_dir)
    running.start()
    assert _answers(running)


def test_a_server_that_cannot_start_shows_its_log(home: Path) -> None:
    private = PrivateCluster(home, extra_settings={"shared_buffers": "1kB"})
    with pytest.raises(SumaclockError, match=r"PostgreSQL did not start[^$]*shared_buffers"):
        private.start()
    assert private.status().pid is None


def test_an_interrupted_initdb_is_no_cluster(home: Path) -> None:
    (home / "data.new").mkdir()
    (home / "data.new" / "PG_VERSION").write_text("15\n")
    private = new_cluster(home)
    assert not private.status().exists
    private.start()
    assert _answers(private)


def test_a_stop_that_hangs_is_made_to_end(running: PrivateCluster) -> None:
    file = running.status().file
    assert file is not None
    with connect(file.superuser_url, "test") as conn:
        backend = psutil.Process(conn.info.backend_pid)
        # A stopped backend answers nothing, so a fast shutdown would wait for ever.
        backend.suspend()
        try:
            assert running.stop(fast_seconds=0.5)
        finally:
            if backend.is_running():
                backend.resume()
    assert running.status().pid is None


@pytest.mark.parametrize("name", ['ünïcödé ☕ quote\'s "and" %41 #?&=\\', "comma, space"])
def test_any_folder_will_do(home: Path, name: str) -> None:
    inner = home / name / ".sumaclock"
    home.chmod(0o755)
    private = new_cluster(inner)
    try:
        private.start()
        assert _answers(private)
        assert Settings(home=inner).cron_url
    finally:
        _remove(inner)


def test_a_long_path_gets_its_sockets_elsewhere(home: Path) -> None:
    said: list[str] = []
    inner = home / ("long" * 25)
    private = new_cluster(inner, said.append)
    try:
        file = private.start()
        assert file.socket_dir.startswith(tempfile.gettempdir())
        assert stat.S_IMODE(Path(file.socket_dir).stat().st_mode) == 0o700
        assert said[0].startswith(f"Sockets are in {file.socket_dir}")
        assert _answers(private)
    finally:
        _remove(inner)


def test_a_home_that_the_server_may_not_enter_gets_its_data_elsewhere(home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root's server runs as another user")
    said: list[str] = []
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    private = new_cluster(closed / ".sumaclock", said.append)
    try:
        file = private.start()
        assert Path(file.data_dir).parent.parent == SYSTEM_HOME
        base = Path(file.data_dir).parent
        assert said[0] == f"Data is in {base}: user postgres, who runs PostgreSQL, may not enter {private.home}."
        assert (private.home / "postgres.log").stat().st_size > 0
        assert _answers(private)
        private.stop()
        assert private.start() == file
    finally:
        _remove(private.home)


def test_root_runs_the_server_as_the_owner_of_its_data(home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run a server as another user")
    inner = home / "of-nobody"
    inner.mkdir()
    shutil.chown(inner, "nobody", "nogroup")
    (inner / "data").mkdir()
    shutil.chown(inner / "data", "nobody", "nogroup")
    _, user = choose_places(inner, silent)
    assert user.name == "nobody"


def test_data_of_another_version_is_not_touched(home: Path) -> None:
    (home / "data").mkdir(mode=0o700)
    (home / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(SumaclockError, match=r"PostgreSQL 9 with pg_cron is not installed.*postgresql-9 "):
        new_cluster(home).start()
    assert [path.name for path in (home / "data").iterdir()] == ["PG_VERSION"]


def test_a_foreign_socket_folder_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    inner = home / ("long" * 25)
    places, _ = choose_places(inner, silent)
    places.socket_dir.mkdir()
    shutil.chown(places.socket_dir, "nobody", "nogroup")
    try:
        with pytest.raises(SumaclockError, match=f"{places.socket_dir} belongs to nobody"):
            new_cluster(inner).start()
    finally:
        _remove(inner)


def test_the_callers_postgresql_variables_do_not_lead_astray(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PGHOST": "/nowhere",
        "PGPORT": "1",
        "PGUSER": "nobody",
        "PGDATA": "/nowhere",
    }.items():
        monkeypatch.setenv(name, value)
    private = new_cluster(home)
    private.start()
    assert _answers(private)


def test_a_refused_login_is_said_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c nonsense=1")
    with pytest.raises(SumaclockError, match=r'does not let us in.*"nonsense"'):
        new_cluster(home).start()


def test_status_before_anything_was_made(tmp_path: Path) -> None:
    private = PrivateCluster(tmp_path / "none")
    assert (private.status().exists, private.status().pid, private.status().file) == (False, None, None)
    assert not private.stop()
    assert not (tmp_path / "none").exists()


def test_until_fails_with_what_it_waited_for() -> None:
    never: Callable[[], bool] = lambda: False  # noqa: E731
    with pytest.raises(AssertionError, match="in vain for the moon"):
        until(never, 0.05, "the moon")


def test_a_url_survives_a_strange_folder(cluster: TestCluster) -> None:
    where = parse_qs(urlsplit(cluster.file.database_url).query)
    assert where == {"host": [cluster.file.socket_dir], "port": [str(cluster.file.port)]}
