"""Every fault of the clock, made for real on a cluster of its own: told by its own name, and as no other."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import psutil
import pytest

from sumaclock_dagster.clock import look
from sumaclock_dagster.clock.faults import FaultKind
from sumaclock_dagster.db import connect, with_database
from sumaclock_dagster.doctor import run_checks
from sumaclock_dagster.embedded.binaries import find_binaries
from sumaclock_dagster.embedded.configuration import server_settings, usable_port
from sumaclock_dagster.embedded.creation import server_environment
from sumaclock_dagster.embedded.places import make_private, server_user
from sumaclock_dagster.embedded.postmaster import find_postmaster, stop_postmaster
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.settings import Settings
from tests.conftest import NEIGHBOUR, TEST_SETTINGS, chosen_pg_bin
from tests.doctor_results import by_name
from tests.faults import (
    LOOK_SECONDS,
    Patient,
    add_unnoticed_jobs,
    assert_told,
    faketime_library,
    new_patient,
    next_minute,
    start_server,
)
from tests.reconcile import NEVER_SOON
from tests.waiting import until

pytestmark = pytest.mark.database
APP = "sumaclock_app"


@pytest.fixture(scope="module")
def shared(_plain_environment: None) -> Iterator[Patient]:
    with new_patient() as patient:
        yield patient


@pytest.fixture
def patient(shared: Patient) -> Iterator[Patient]:
    """Healthy at first, and made healthy again: no fault outlives its cause."""
    assert shared.told_to_the_app() == []
    yield shared
    shared.heal()


HURRIED_GRACE_SECONDS = 3.0
HURRIED_SECONDS = look.GRACE_SECONDS - HURRIED_GRACE_SECONDS


@pytest.fixture
def patient_at_once(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> Patient:
    """What is due counts as late three seconds after its minute."""
    monkeypatch.setattr(look, "GRACE_SECONDS", HURRIED_GRACE_SECONDS)
    return patient


def test_the_launcher_is_gone(patient: Patient) -> None:
    began = time.monotonic()
    with patient.superuser() as superuser:
        superuser.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'pg_cron scheduler'"
        )
    if patient.told_to_the_app() == []:
        pytest.skip("A terminated launcher of this pg_cron comes back by itself")
    assert_told(FaultKind.LAUNCHER_GONE, patient.settings, since=began, remedy="restart PostgreSQL")


def test_pg_cron_is_not_loaded(patient: Patient) -> None:
    began = time.monotonic()
    with pytest.raises(SumaclockError, match="shared_preload_libraries"):
        patient.restart(shared_preload_libraries="")
    faults = patient.told_to_the_app()
    assert time.monotonic() - began <= LOOK_SECONDS
    assert [fault.kind for fault in faults] == [FaultKind.LAUNCHER_GONE]
    assert "shared_preload_libraries" in faults[0].remedy


def test_a_row_whose_role_was_dropped_crashes_the_launcher(patient: Patient) -> None:
    with patient.superuser() as superuser:
        superuser.execute("create role ghost login")
        ghost = superuser.execute(
            "insert into cron.job (schedule, command, database, username, nodename, nodeport)"
            " values (%s, 'select', 'postgres', 'ghost', %s, %s) returning jobid",
            [NEVER_SOON, patient.file.socket_dir, patient.file.port],
        ).fetchone()
        superuser.execute("drop role ghost")
        # Any change makes the launcher read all rows.
        began = time.monotonic()
        superuser.execute("update cron.job set schedule = schedule")
        assert ghost is not None
        until(lambda: patient.told_to_the_app() != [], 10, "a crash", 0.1)
        by_id = f"`delete from cron.job where jobid in ({ghost[0]});`"
        assert_told(
            FaultKind.LAUNCHER_CRASHES,
            patient.settings,
            since=began,
            remedy="where username not in (select rolname",
            doctor_remedy=by_id,
        )
        assert "of role 'ghost'" in str(by_name(run_checks(patient.settings))["pg_cron launcher"].problem)
        superuser.execute("delete from cron.job where username not in (select rolname from pg_catalog.pg_roles)")
        until(lambda: patient.told_to_the_app() == [], 10, "the launcher", 0.1)


def test_logins_are_refused(patient: Patient) -> None:
    patient.add_at_start("select")
    patient.stop()
    # The launcher logs in as the server's own user; root, who looks, is still let in.
    map_file = Path(patient.file.data_dir) / "pg_ident.conf"
    lines = map_file.read_text().splitlines()
    user = server_user(Path(patient.file.data_dir)).name
    map_file.write_text("\n".join(line for line in lines if line != f'sumaclock "{user}" "{APP}"') + "\n")
    if f'sumaclock "root" "{APP}"' not in map_file.read_text() or user == "root":
        pytest.skip("Whoever runs the tests is the server's user, who would be refused, too")
    began = time.monotonic()
    patient.start_plainly()
    until(lambda: patient.told_to_the_app() != [], LOOK_SECONDS, "a refused login", 0.2)
    assert_told(FaultKind.LOGINS_REFUSED, patient.settings, since=began, remedy="pg_hba.conf")


@pytest.mark.parametrize(
    ("change", "where", "lacking"),
    [
        (f"revoke usage on schema cron from {APP}", "postgres", "grant usage on schema cron"),
        (f"revoke select on cron.job from {APP}, public", "postgres", "grant select on cron.job"),
        (f"revoke all on function cron.unschedule(bigint) from public, {APP}", "postgres", "cron.unschedule"),
        (f"revoke insert on sumaclock.cron_runs from {APP}", "sumaclock", "grant insert on sumaclock.cron_runs"),
        (f"revoke connect on database sumaclock from {APP}", "postgres", "database"),
    ],
)
def test_a_privilege_is_missing(patient: Patient, change: str, where: str, lacking: str) -> None:
    with connect(with_database(patient.file.superuser_url, where), "test") as superuser:
        began = time.monotonic()
        superuser.execute(change)
        back = change.replace("revoke", "grant", 1).replace(" from ", " to ").replace("public, ", "")
        try:
            doctor = f'`grant connect on database "sumaclock" to "{APP}";`' if "connect" in change else lacking
            remedy = "first_boot.sql" if "connect" in change else lacking
            kind, settings = FaultKind.PRIVILEGE_MISSING, patient.settings
            assert_told(kind, settings, since=began, remedy=remedy, doctor_remedy=doctor)
        finally:
            superuser.execute(back.replace(", public", ""))


@pytest.mark.parametrize("add_job", [Patient.add_clock_job, Patient.add_slot_job], ids=["jobs", "slots"])
def test_the_database_was_renamed(add_job: Callable[[Patient, str], UUID], patient: Patient) -> None:
    add_job(patient, NEVER_SOON)
    with patient.superuser() as superuser:
        began = time.monotonic()
        superuser.execute("alter database sumaclock rename to moved")
        try:
            assert_told(
                FaultKind.RENAMED,
                patient.settings,
                since=began,
                remedy="name the database of today",
                doctor_remedy="renamed",
            )
            assert "'moved'" in patient.told_to_the_app()[0].problem
            # Once the URL is right, what is left are clock jobs that fire into nowhere.
            settings = patient.other_urls(
                with_database(patient.file.database_url, "moved"), patient.file.cron_database_url
            )
            remedy = "where database = 'sumaclock'"
            assert_told(FaultKind.RENAMED, settings, since=time.monotonic(), remedy=remedy)
        finally:
            superuser.execute("alter database moved rename to sumaclock")


@pytest.mark.parametrize("add_job", [Patient.add_clock_job, Patient.add_slot_job], ids=["jobs", "slots"])
def test_the_role_was_renamed(add_job: Callable[[Patient, str], UUID], patient: Patient) -> None:
    add_job(patient, NEVER_SOON)
    with patient.superuser() as superuser:
        began = time.monotonic()
        superuser.execute(f"alter role {APP} rename to {NEIGHBOUR}")
        superuser.execute("update cron.job set schedule = schedule")
        try:
            assert_told(
                FaultKind.RENAMED,
                patient.settings,
                since=began,
                remedy="name the role of today",
                doctor_remedy="renamed",
            )
            urls = (patient.file.database_url, patient.file.cron_database_url)
            settings = patient.other_urls(*(url.replace(APP, NEIGHBOUR) for url in urls))
            remedy = f'`alter role "{NEIGHBOUR}" rename to "{APP}";`'
            assert_told(FaultKind.RENAMED, settings, since=time.monotonic(), remedy=remedy)
        finally:
            superuser.execute(f"alter role {NEIGHBOUR} rename to {APP}")


def test_a_standby_and_after_its_promotion_a_clone_that_fires_into_its_origin(patient: Patient, tmp_path: Path) -> None:
    patient.add_clock_job(NEVER_SOON)
    user = server_user(Path(patient.file.data_dir))
    base = patient.home / "standby"
    sockets, data = base / "sockets", base / "data"
    for folder in (base, sockets, data):
        make_private(folder, user)
    base.chmod(0o711)
    _let_replicate(patient)
    program = str(Path(find_binaries(chosen_pg_bin()).bin_dir) / "pg_basebackup")
    origin = ["-h", patient.file.socket_dir, "-p", str(patient.file.port), "-U", "postgres"]
    subprocess.run(
        [program, *origin, "-D", str(data), "--write-recovery-conf", "--checkpoint=fast", "--no-sync"],
        check=True,
        cwd="/",
        env=server_environment(),
        **user.switch,
    )
    port = usable_port(None)
    conf = data / "sumaclock.conf"
    conf.write_text(server_settings(port, sockets, TEST_SETTINGS))
    superuser_url, app_url, cron_url = (
        url.replace(str(patient.file.port), str(port)).replace(
            patient.file.socket_dir.replace("/", "%2F"), str(sockets).replace("/", "%2F")
        )
        for url in (patient.file.superuser_url, patient.file.database_url, patient.file.cron_database_url)
    )
    assert str(sockets).replace("/", "%2F") in app_url or "/standby/" in app_url, app_url
    began = time.monotonic()
    start_server(data, tmp_path, superuser_url, {})
    try:
        settings = Settings(home=patient.home, database_url=app_url, cron_database_url=cron_url)
        assert_told(FaultKind.STANDBY, settings, since=began, remedy="at the primary")
        with connect(superuser_url, "test") as superuser:
            began = time.monotonic()
            superuser.execute("select pg_promote(true, 60)")
            until(
                lambda: superuser.execute(
                    "select 1 from pg_stat_activity where application_name = 'pg_cron scheduler'"
                ).fetchone(),
                20,
                "the promoted server's launcher",
            )
        assert_told(FaultKind.FIRES_ELSEWHERE, settings, since=began, remedy="`sumaclock drift --fix`")
        assert patient.told_to_the_app() == [], "the origin is well"
    finally:
        server = find_postmaster(data)
        if server is not None:
            stop_postmaster(server, 10)


def _let_replicate(patient: Patient) -> None:
    rules = Path(patient.file.data_dir) / "pg_hba.conf"
    rules.write_text(rules.read_text() + "local replication all peer map=sumaclock\n")
    with patient.superuser() as superuser:
        superuser.execute("select pg_reload_conf()")
        until(
            lambda: superuser.execute("select 1 from pg_hba_file_rules where 'replication' = any (database)").fetchone()
        )


def test_the_clock_was_set_back(patient: Patient, tmp_path: Path) -> None:
    library = faketime_library()
    if library is None:
        pytest.skip("libfaketime, which sets a server's clock without touching the machine's, is not installed")
    patient.add_at_start("select")
    patient.stop()
    offset = patient.home / "offset"
    offset.write_text("+900")
    patient.start_plainly(
        {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(offset),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
    )
    with patient.superuser() as superuser:
        # What PostgreSQL 15 starts from a signal handler, as its first launcher, escapes libfaketime; the next do not.
        superuser.execute("update cron.job set username = 'ghost'")
        until(lambda: patient.told_to_the_app() != [], 10, "a crash", 0.1)
        superuser.execute("truncate cron.job_run_details")
        superuser.execute(f"update cron.job set username = '{APP}'")
        until(
            lambda: superuser.execute(
                "select 1 from cron.job_run_details"
                " where status = 'succeeded' and start_time between now() - interval '1 minute' and now()"
            ).fetchone(),
            20,
            "a firing at the false time",
        )
        assert patient.told_to_the_app() == []
        began = time.monotonic()
        offset.write_text("+0")
        until(
            lambda: superuser.execute(
                "select 1 from cron.job_run_details where start_time > clock_timestamp() + interval '10 minutes'"
            ).fetchone()
        )
    assert_told(FaultKind.CLOCK_SET_BACK, patient.settings, since=began, remedy="restart PostgreSQL")


def test_background_workers_are_short(patient: Patient) -> None:
    patient.add_at_start("select")
    # pg_cron's launcher and replication's take both.
    began = time.monotonic()
    patient.restart(cron__use_background_workers="on", max_worker_processes="2")
    until(lambda: patient.told_to_the_app() != [], LOOK_SECONDS, "a firing without a worker", 0.5)
    assert_told(FaultKind.WORKER_SLOTS_SHORT, patient.settings, since=began, remedy="max_worker_processes")


def test_the_launcher_missed_a_change(patient_at_once: Patient) -> None:
    patient = patient_at_once
    # An analysis of cron.job would make the launcher read it, and so would the canary.
    patient.restart(autovacuum="off")
    with patient.superuser() as superuser:
        superuser.execute("delete from cron.job")
        deleted = superuser.execute("select clock_timestamp() + interval '4 seconds'").fetchone()
        # The launcher reads again within a second of that; what came before its reading would not be missed.
        until(lambda: superuser.execute("select 1 where clock_timestamp() > %s", deleted).fetchone())
        launcher = superuser.execute(
            "select pid from pg_stat_activity where application_name = 'pg_cron scheduler'"
        ).fetchone()
        assert launcher is not None
        # Whether it keeps up with so many messages is a matter of luck; one that the machine has paused never does.
        process = psutil.Process(launcher[0])
        process.suspend()
        try:
            add_unnoticed_jobs(patient, 6000)
        finally:
            process.resume()
        # The first firing that does not come.
        began = next_minute()
        until(lambda: patient.told_to_the_app() != [], 70, "a firing that does not come", 0.5)
        assert "2 clock jobs that are right have not fired" in patient.told_to_the_app()[0].problem, "the slot's, too"
        assert_told(
            FaultKind.CHANGE_MISSED,
            patient.settings,
            since=began,
            remedy="Any change of cron.job",
            hurried_seconds=HURRIED_SECONDS,
        )
        # The remedy is one.
        superuser.execute("update cron.job set schedule = schedule where jobname = 'filler 1'")
        until(lambda: patient.told_to_the_app() == [], 70, "its firing", 0.5)


def test_pg_cron_has_more_to_start_than_it_can(patient_at_once: Patient) -> None:
    patient = patient_at_once
    patient.add_at_start("select pg_sleep(600)")
    patient.restart(cron__max_running_jobs="1")
    patient.add_clock_job()
    began = next_minute()
    until(lambda: patient.told_to_the_app() != [], 70, "a firing that does not come", 0.5)
    assert_told(
        FaultKind.QUEUE_FULL,
        patient.settings,
        since=began,
        remedy="cron.max_running_jobs",
        hurried_seconds=HURRIED_SECONDS,
    )


def test_nobody_answers(patient: Patient) -> None:
    began = time.monotonic()
    patient.stop()
    faults = patient.told_to_the_app()
    assert time.monotonic() - began <= LOOK_SECONDS
    assert {fault.kind for fault in faults} == {FaultKind.UNREACHABLE}
    assert "Start the server" in faults[0].remedy
