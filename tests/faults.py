"""What the tests of faults share: a cluster to spoil, and everybody who should tell what is wrong with it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import dagster as dg
from pydantic import SecretStr

from sumaclock_dagster.clock.command import firing_command, slot_firing_command
from sumaclock_dagster.clock.diagnosis import find_faults
from sumaclock_dagster.clock.faults import Fault, FaultKind
from sumaclock_dagster.clock.jobs import create_job
from sumaclock_dagster.clock.pg_cron import Clock, clock_job_name
from sumaclock_dagster.clock.slots import SLOT_PREFIX, slot_id
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.definitions import build
from sumaclock_dagster.defs.clock_faults import faults_changed
from sumaclock_dagster.doctor import CheckOutcome, run_checks
from sumaclock_dagster.embedded.binaries import find_binaries
from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.embedded.configuration import ClusterFile
from sumaclock_dagster.embedded.creation import server_environment
from sumaclock_dagster.embedded.places import server_user
from sumaclock_dagster.embedded.postmaster import is_alive, start_postmaster, wait_until_accepting
from sumaclock_dagster.settings import Settings
from tests.conftest import NEIGHBOUR, TEST_SETTINGS, chosen_pg_bin, new_home, remove_cluster
from tests.reconcile import insert_jobs
from tests.waiting import until

EVERY_MINUTE = "* * * * *"
# A fault is told within two minutes: the look that names it comes up to one pause of the sensor late.
TOLD_SECONDS = 120.0
LOOK_SECONDS = TOLD_SECONDS - (faults_changed.minimum_interval_seconds or 30)


@dataclass(frozen=True)
class Patient:
    """A private cluster, and where its databases are."""

    home: Path
    file: ClusterFile

    @property
    def settings(self) -> Settings:
        return Settings(home=self.home)

    def other_urls(self, app_url: str, cron_url: str) -> Settings:
        return self.settings.model_copy(
            update={"database_url": SecretStr(app_url), "cron_database_url": SecretStr(cron_url)}
        )

    def superuser(self) -> Connection:
        return connect(self.file.superuser_url, "test superuser")

    def restart(self, **settings: str) -> None:
        """With the usual settings and these; '__' in a name is a dot."""
        self.stop()
        self._cluster({name.replace("__", "."): value for name, value in settings.items()}).start()

    def stop(self) -> None:
        PrivateCluster(self.home).stop(fast_seconds=10)

    def start_plainly(self, environment: Mapping[str, str] | None = None) -> None:
        """With the files as they are, which `restart` would write anew."""
        start_server(Path(self.file.data_dir), self.home, self.file.superuser_url, environment or {})

    def add_clock_job(self, schedule: str = EVERY_MINUTE) -> UUID:
        """An enabled job with its clock job."""
        with connect(self.file.database_url, "test") as app, Clock(self.file.cron_database_url, "sumaclock") as clock:
            job = insert_jobs(app, 1, schedule)[0]
            clock.schedule(job, schedule)
        return job

    def add_slot_job(self, schedule: str = EVERY_MINUTE) -> UUID:
        """An enabled job that fires by its slot."""
        file = self.file
        with connect(file.database_url, "test") as app, Clock(file.cron_database_url, "sumaclock", "slots") as clock:
            job = create_job(
                app,
                clock,
                kind="demo",
                organization_id="acme",
                user_id="ada",
                payload={},
                schedule=schedule,
                enabled=True,
            )
        return job.id

    def add_at_start(self, command: str) -> None:
        """What pg_cron fires whenever its launcher starts, instead of at the next full minute."""
        with connect(self.file.cron_database_url, "test") as cron:
            cron.execute("select cron.schedule_in_database('at start', '@reboot', %s, 'sumaclock')", [command])

    def heal(self) -> None:
        """As it was made."""
        self.restart()
        with self.superuser() as superuser, connect(self.file.database_url, "test") as app:
            superuser.execute("delete from cron.job; truncate cron.job_run_details")
            app.execute("delete from sumaclock.cron_jobs; delete from sumaclock.clock_slots")
        until(lambda: self.told_to_the_app() == [], 30, "a healthy clock", 0.2)

    def told_to_the_app(self) -> list[Fault]:
        return find_faults(self.settings.app_url, self.settings.cron_url)

    def _cluster(self, settings: Mapping[str, str]) -> PrivateCluster:
        extra = {**TEST_SETTINGS, **settings}
        return PrivateCluster(self.home, pg_bin=chosen_pg_bin(), extra_settings=extra, extra_roles=(NEIGHBOUR,))


@contextmanager
def new_patient() -> Iterator[Patient]:
    home = new_home()
    private = PrivateCluster(home, pg_bin=chosen_pg_bin(), extra_settings=TEST_SETTINGS, extra_roles=(NEIGHBOUR,))
    try:
        yield Patient(home, private.start())
    finally:
        remove_cluster(private)


def start_server(data_dir: Path, log_folder: Path, superuser_url: str, environment: Mapping[str, str]) -> None:
    """A server that `PrivateCluster` does not know how to start; it stops it all the same."""
    postgres = find_binaries(chosen_pg_bin()).program("postgres")
    whole = {**server_environment(), **environment}
    server = start_postmaster(postgres, data_dir, log_folder / "plain.log", server_user(data_dir), whole)
    assert wait_until_accepting(is_alive(server), superuser_url, 60), (log_folder / "plain.log").read_text()


def add_unnoticed_jobs(patient: Patient, fillers: int) -> None:
    """Two jobs, one with a clock job and one in a slot, as right as any, made in one transaction with more changes than
    pg_cron notices."""
    slot = slot_id(EVERY_MINUTE)
    with (
        connect(patient.file.database_url, "test") as app,
        connect(patient.file.cron_database_url, "test") as cron,
        cron.transaction(),
    ):
        alone, shared = insert_jobs(app, 2, EVERY_MINUTE)
        app.execute("insert into sumaclock.clock_slots (id, schedule) values (%s, %s)", [slot, EVERY_MINUTE])
        app.execute("update sumaclock.cron_jobs set slot_since = now() where id = %s", [shared])
        for name, command in (
            (clock_job_name("sumaclock", alone), firing_command(alone)),
            (clock_job_name("sumaclock", slot, SLOT_PREFIX), slot_firing_command(slot)),
        ):
            cron.execute("select cron.schedule_in_database(%s, '* * * * *', %s, 'sumaclock')", [name, command])
        cron.execute(
            "select cron.schedule_in_database('filler ' || n, '0 0 29 2 *', 'select', 'sumaclock')"
            " from generate_series(1, %s) as n",
            [fillers],
        )


def next_minute() -> float:
    """When the next full minute begins, by the monotonic clock."""
    return time.monotonic() + 60 - time.time() % 60


def assert_told(
    kind: FaultKind,
    settings: Settings,
    *,
    since: float,
    remedy: str,
    doctor_remedy: str | None = None,
    hurried_seconds: float = 0.0,
) -> None:
    """The app role, the doctor and the check in Dagster each tell this fault with its remedy, and no other fault.

    since: when the fault began, by the monotonic clock. The first look that names it comes soon enough for the promise
    of two minutes, also where a test has shortened what is waited for by some `hurried_seconds`.
    """
    faults = find_faults(settings.app_url, settings.cron_url)
    seconds = time.monotonic() - since + hurried_seconds
    assert [fault.kind for fault in faults] == [kind], faults
    assert seconds <= LOOK_SECONDS, f"{kind} was told after {seconds:.0f} s"
    assert remedy in faults[0].remedy
    for sentence in (faults[0].problem, faults[0].remedy):
        assert sentence.endswith("."), sentence
    _assert_doctor_tells(kind, settings, remedy if doctor_remedy is None else doctor_remedy)
    _assert_check_tells(kind, settings, remedy)


def _assert_doctor_tells(kind: FaultKind, settings: Settings, remedy: str) -> None:
    failed = {r.found.partition(":")[0]: r for r in run_checks(settings) if r.outcome is CheckOutcome.FAILED}
    named = {name: result for name, result in failed.items() if name in set(FaultKind)}
    assert set(named) == {kind}, failed
    assert remedy in str(named[kind].remedy), named[kind]


def _assert_check_tells(kind: FaultKind, settings: Settings, remedy: str) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = build(settings).resolve_job_def("check_clock").execute_in_process(instance=instance)
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed
    assert check.metadata["faults"].value == kind.value
    assert str(check.description).startswith(f"{kind.value}: ")
    assert remedy in str(check.description)


def faketime_library() -> str | None:
    """The path of libfaketime, or None."""
    folders = (Path("/usr/lib"), Path("/usr/local/lib"), Path(os.environ.get("FAKETIME_FOLDER", "/usr/lib/faketime")))
    found = (path for folder in folders for path in folder.glob("**/faketime/libfaketime.so.1"))
    return next((str(path) for path in found), None)
