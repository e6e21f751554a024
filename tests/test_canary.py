"""The canary, on clusters of its own: pg_cron's launcher misses a change of thousands of rows, and with the canary it
does not for long."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.clock.system_jobs import clear_system
from sumaclock_dagster.db import Connection, connect, query, with_database
from sumaclock_dagster.embedded.binaries import find_binaries
from tests.conftest import TestCluster, make_app_database, new_cluster, new_home, remove_cluster
from tests.waiting import until

# 1.4 misses over 3,000, and 1.6 over 4,096.
MANY = 5000
SCHEDULE_MANY = """
select max(cron.schedule_in_database('job ' || n, case n when 1 then '* * * * *' else '0 0 29 2 *' end, 'select 1', %s))
from generate_series(1, %s) as n
"""


@dataclass(frozen=True)
class Side:
    """Connections to one cluster's pg_cron, as the app role and as a superuser."""

    app: Connection
    superuser: Connection

    def schedule_many(self) -> None:
        """In one transaction: one clock job for each minute, and thousands of others. The launcher misses it unless it
        happens to read along, so it is held meanwhile."""
        row = self.superuser.execute(query("find_launcher")).fetchone()
        assert row is not None
        os.kill(row[0], signal.SIGSTOP)
        try:
            self.app.execute(SCHEDULE_MANY, ["postgres", MANY])
        finally:
            os.kill(row[0], signal.SIGCONT)

    def fired(self, name: str) -> int:
        row = self.superuser.execute(
            "select count(*) from cron.job_run_details where status = 'succeeded'"
            " and jobid = (select jobid from cron.job where jobname = %s)",
            [name],
        ).fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def a_cluster(name: str, *, canary: bool) -> Iterator[Side]:
    private = new_cluster(new_home())
    try:
        file = private.start()
        found = TestCluster(private, private.home, file, find_binaries(Path(file.bin_dir)))
        app_db = make_app_database(found, name)
        with connect(app_db.app_url, "test app") as app, open_clock(app, app_db.cron_url) as clock:
            # The one that came with the cluster, and the one of this database.
            removed = clear_system(clock) if not canary else 0
            assert removed == (0 if canary else 2)
        with (
            connect(app_db.cron_url, "test app") as as_app,
            connect(with_database(app_db.superuser_url, "postgres"), "test look") as superuser,
        ):
            if not canary:
                superuser.execute("delete from cron.job")
            # Autovacuum looks at the table after so many changes, which the launcher would notice by chance.
            superuser.execute("alter table cron.job set (autovacuum_enabled = off)")
            yield Side(as_app, superuser)
    finally:
        remove_cluster(private)


@pytest.mark.firing
def test_a_change_that_the_launcher_misses_is_noticed_with_the_canary_alone() -> None:
    with ExitStack() as stack:
        without = stack.enter_context(a_cluster("lone", canary=False))
        with_canary = stack.enter_context(a_cluster("watched", canary=True))
        # Until the canary fires, its launcher knows it; then nothing but the canary changes cron.job.
        until(lambda: with_canary.fired("watched:system:canary"), 75, "the canary's first firing", poll_seconds=0.2)
        without.schedule_many()
        with_canary.schedule_many()
        # The canary fires at the next minute, and what it made the launcher see at the one after that.
        until(lambda: with_canary.fired("job 1"), 135, "the job that the launcher had missed", poll_seconds=0.2)
        assert without.fired("job 1") == 0, "two minutes on, the launcher knows nothing of it"
        failed = "select return_message from cron.job_run_details where status = 'failed'"
        assert with_canary.superuser.execute(failed).fetchall() == []
