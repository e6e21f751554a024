"""Checks that need a server of their own to spoil: pg_cron not loaded, dead or unable to log in, a standby, TLS."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from sumaclock_dagster.db import connect
from sumaclock_dagster.doctor import CheckOutcome, CheckResult, run_checks
from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.embedded.configuration import ClusterFile
from sumaclock_dagster.embedded.places import server_user
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.settings import Settings
from tests.conftest import TEST_SETTINGS, TestCluster, chosen_pg_bin, new_home, remove_cluster
from tests.doctor_results import by_name, problem_of
from tests.waiting import until

OPENSSL = shutil.which("openssl")
PASSWORD = "only-for-this-test"  # noqa: S105


@dataclass
class Spare:
    """A second private cluster, restarted with other settings at will. `certificate`: of its TLS, '' if none."""

    home: Path
    file: ClusterFile
    certificate: str
    tls: dict[str, str]

    def restart(self, **settings: str) -> None:
        """Run with pg_cron's usual settings and these ('__' in a name is a dot). First boot fails where it must."""
        PrivateCluster(self.home).stop(fast_seconds=10)
        extra = {**TEST_SETTINGS, **self.tls, **{name.replace("__", "."): value for name, value in settings.items()}}
        with suppress(SumaclockError, psycopg.Error):
            PrivateCluster(self.home, pg_bin=chosen_pg_bin(), extra_settings=extra).start()

    def url(self, query: str = "") -> str:
        """The app database over TCP, with a password."""
        return f"postgresql://sumaclock_app:{PASSWORD}@127.0.0.1:{self.file.port}/sumaclock{query}"

    def check(self, **urls: str) -> dict[str, CheckResult]:
        return by_name(run_checks(Settings(home=self.home, **{name: SecretStr(url) for name, url in urls.items()})))


@pytest.fixture(scope="module")
def spare(_plain_environment: None) -> Iterator[Spare]:
    home = new_home()
    private = PrivateCluster(home, pg_bin=chosen_pg_bin(), extra_settings=TEST_SETTINGS)
    certificates = Path(tempfile.mkdtemp(prefix="sumaclock-tls-"))
    try:
        file = private.start()
        with connect(file.superuser_url, "test") as superuser:
            superuser.execute(f"alter role sumaclock_app password '{PASSWORD}'")
        certificate, tls = _make_certificate(certificates, Path(file.data_dir))
        yield Spare(home, file, certificate, tls)
    finally:
        remove_cluster(private)
        shutil.rmtree(certificates)


def _make_certificate(folder: Path, data_dir: Path) -> tuple[str, dict[str, str]]:
    if OPENSSL is None:
        return "", {}
    key, certificate = folder / "server.key", folder / "server.crt"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *files], check=True, capture_output=True
    )
    for path in (folder, key, certificate):
        server_user(data_dir).own(path)
    return str(certificate), {"ssl": "on", "ssl_key_file": str(key), "ssl_cert_file": str(certificate)}


def test_a_healthy_private_cluster_passes(spare: Spare) -> None:
    assert [name for name, result in spare.check().items() if result.outcome is not CheckOutcome.OK] == []


def test_a_private_cluster_that_is_stopped(spare: Spare) -> None:
    PrivateCluster(spare.home).stop(fast_seconds=10)
    results = spare.check()
    spare.restart()
    for name in ("app database", "cron database", "Dagster database"):
        problem, remedy = problem_of(results, name)
        assert "Nothing accepts connections" in problem
        assert remedy == "Start the private cluster with `bin/up`."


def test_app_and_cron_database_on_two_servers(spare: Spare, cluster: TestCluster) -> None:
    results = spare.check(cron_database_url=cluster.file.cron_database_url)
    problem, remedy = problem_of(results, "one server")
    assert "two servers" in problem
    assert "SUMACLOCK_CRON_DATABASE_URL" in remedy
    assert results["pg_cron loaded"].outcome is CheckOutcome.SKIPPED


def test_pg_cron_that_is_not_loaded(spare: Spare) -> None:
    spare.restart(shared_preload_libraries="")
    results = spare.check()
    problem, remedy = problem_of(results, "pg_cron loaded")
    assert "not loaded" in problem
    assert "shared_preload_libraries" in remedy
    assert results["pg_cron launcher"].outcome is CheckOutcome.SKIPPED


def test_pg_cron_that_is_not_loaded_before_first_boot(spare: Spare) -> None:
    spare.restart(shared_preload_libraries="")
    # A database that first_boot.sql has not seen: the launcher's absence is all there is to see.
    results = spare.check(database_url=spare.file.dagster_database_url.replace("+psycopg2", ""))
    problem, _ = problem_of(results, "pg_cron loaded")
    assert "not loaded" in problem


def test_a_standby(spare: Spare) -> None:
    signal = Path(spare.file.data_dir) / "standby.signal"
    PrivateCluster(spare.home).stop(fast_seconds=10)
    signal.touch()
    server_user(Path(spare.file.data_dir)).own(signal)
    try:
        spare.restart()
        results = spare.check()
    finally:
        PrivateCluster(spare.home).stop(fast_seconds=10)
        signal.unlink(missing_ok=True)
    problem, remedy = problem_of(results, "primary")
    assert "standby" in problem
    assert "SUMACLOCK_DATABASE_URL" in remedy
    assert results["sessions"].outcome is CheckOutcome.SKIPPED


def test_a_time_zone_of_pg_cron_s_own(spare: Spare) -> None:
    spare.restart()
    with connect(spare.file.superuser_url, "test") as superuser:
        row = superuser.execute("select from pg_settings where name = 'cron.timezone'").fetchone()
    if row is None:
        pytest.skip("This pg_cron has no cron.timezone: it always counts in GMT")
    spare.restart(cron__timezone="Europe/Madrid")
    problem, remedy = problem_of(spare.check(), "pg_cron time zone")
    assert "Europe/Madrid" in problem
    assert "cron.timezone = 'GMT'" in remedy


@pytest.mark.skipif(OPENSSL is None, reason="openssl, which makes the server's certificate, is not installed")
class TestTls:
    def test_an_authority_that_is_not_the_certificate_s(self, spare: Spare, tmp_path: Path) -> None:
        spare.restart()
        _make_certificate(tmp_path, Path(spare.file.data_dir))
        query = f"?sslmode=verify-ca&sslrootcert={tmp_path / 'server.crt'}"
        problem, remedy = problem_of(spare.check(database_url=spare.url(query)), "app database")
        assert "TLS" in problem
        assert "sslrootcert" in remedy

    def test_a_certificate_for_another_host(self, spare: Spare) -> None:
        spare.restart()
        query = f"?sslmode=verify-full&sslrootcert={spare.certificate}"
        problem, remedy = problem_of(spare.check(database_url=spare.url(query)), "app database")
        assert "TLS" in problem
        assert "host" in remedy

    def test_the_right_certificate_passes(self, spare: Spare) -> None:
        spare.restart()
        url = spare.url(f"?sslmode=verify-full&sslrootcert={spare.certificate}").replace("127.0.0.1", "localhost")
        results = spare.check(database_url=url)
        assert results["app database"].outcome is CheckOutcome.OK
        assert results["sessions"].outcome is CheckOutcome.OK

    def test_a_server_that_insists_on_tls(self, spare: Spare) -> None:
        spare.restart()
        _let_in(spare, "hostssl all all 127.0.0.1/32 scram-sha-256")
        problem, remedy = problem_of(spare.check(database_url=spare.url("?sslmode=disable")), "app database")
        assert "without TLS" in problem
        assert "sslmode=require" in remedy

    def test_an_address_that_pg_hba_does_not_know(self, spare: Spare) -> None:
        spare.restart()
        _let_in(spare, "hostssl all nobody_else 127.0.0.1/32 scram-sha-256")
        problem, remedy = problem_of(spare.check(database_url=spare.url("?sslmode=require")), "app database")
        assert "pg_hba.conf" in problem
        assert "reload" in remedy


def _let_in(spare: Spare, rule: str) -> None:
    """Replace the rules for TCP by `rule`, until the next restart."""
    rules = Path(spare.file.data_dir) / "pg_hba.conf"
    kept = [line for line in rules.read_text().splitlines() if not line.startswith("host")]
    rules.write_text("\n".join([*kept, rule, ""]))
    with connect(spare.file.superuser_url, "test") as superuser:
        superuser.execute("select pg_reload_conf()")
        until(
            lambda: superuser.execute(
                "select 1 from pg_hba_file_rules where type = 'hostssl' and error is null"
            ).fetchone()
        )


def test_pg_cron_that_cannot_log_in(spare: Spare) -> None:
    spare.restart()
    with connect(spare.file.cron_database_url, "test") as app:
        # Fires when the launcher starts, instead of at the next full minute.
        app.execute("select cron.schedule_in_database('doctor', '@reboot', 'select', 'sumaclock')")
    with connect(spare.file.superuser_url, "test") as superuser:
        superuser.execute("update cron.job set nodename = '/nonexistent' where jobname = 'doctor'")
    spare.restart()
    with connect(spare.file.superuser_url, "test") as superuser:
        until(lambda: superuser.execute("select 1 from cron.job_run_details where status = 'failed'").fetchone(), 30)
        superuser.execute("delete from cron.job")
    problem, remedy = problem_of(spare.check(), "firing login")
    assert "could not log in" in problem
    assert "'sumaclock_app'" in problem
    assert "pg_hba.conf" in remedy
    assert ".pgpass" in remedy


def test_the_extension_is_gone(spare: Spare) -> None:
    spare.restart()
    with connect(spare.file.superuser_url, "test") as superuser:
        superuser.execute("drop extension pg_cron cascade")
        problem, remedy = problem_of(spare.check(), "pg_cron extension")
        assert "extension pg_cron" in problem
        assert "`create extension pg_cron;`" in remedy
        superuser.execute("create extension pg_cron")
