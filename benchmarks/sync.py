"""Clock jobs that are missing, as after a restore: a sync against one round trip each.

    python benchmarks/sync.py [--jobs 10000]

On a private cluster of its own in a temporary folder, with real pg_cron and all defaults (durable commits), over a Unix
socket. Two other ways: the barest loop there is, one autocommitted `cron.schedule_in_database` a job without looking at
what is there; and `Clock.schedule` a job, which looks. Where a commit or the way to the server costs more than here, a
sync gains more: it takes about ten of either a thousand jobs.
"""

from __future__ import annotations

import argparse
import time

from ground import private_cluster

from sumaclock_dagster.clock.bulk import clear
from sumaclock_dagster.clock.command import firing_command
from sumaclock_dagster.clock.pg_cron import Clock, clock_job_name, open_clock
from sumaclock_dagster.db import Connection, connect, query
from sumaclock_dagster.embedded.configuration import ClusterFile
from sumaclock_dagster.migrate import load_migrations, migrate
from sumaclock_dagster.reconcile.drift import find_drift
from sumaclock_dagster.reconcile.sync import sync

SCHEDULE = "0 0 29 2 *"
INSERT = """
    insert into sumaclock.cron_jobs (kind, organization_id, user_id, schedule)
    select 'demo', 'bench', 'bench', %s from generate_series(1, %s)"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    arguments = parser.parse_args()
    with private_cluster() as (_, file):
        measure(file, arguments.jobs)


def measure(file: ClusterFile, jobs: int) -> None:
    with connect(file.owner_database_url, "bench migrate") as owner:
        migrate(owner, load_migrations())
    with connect(file.database_url, "bench") as app, open_clock(app, file.cron_database_url) as clock:
        app.execute(INSERT, [SCHEDULE, jobs])
        bare = timed_loop(app, clock, file.cron_database_url)
        assert find_drift(app, clock) == []
        clear(clock)
        began = time.monotonic()
        for (job_id,) in app.execute("select id from sumaclock.cron_jobs").fetchall():
            clock.schedule(job_id, SCHEDULE)
        careful = time.monotonic() - began
        clear(clock)
        began = time.monotonic()
        report = sync(app, clock, say=print)
        at_once = time.monotonic() - began
        assert report.left == []
        assert report.placed == jobs
        began = time.monotonic()
        assert find_drift(app, clock) == []
        looked = time.monotonic() - began
    print(f"{jobs} missing clock jobs")
    print(f"  a bare statement each {bare:7.2f} s   sync is {bare / at_once:.1f} times faster")
    print(f"  Clock.schedule each   {careful:7.2f} s   sync is {careful / at_once:.1f} times faster")
    print(f"  sync                  {at_once:7.2f} s")
    print(f"  a look without drift  {looked:7.2f} s")


def timed_loop(app: Connection, clock: Clock, cron_url: str) -> float:
    ids = [row[0] for row in app.execute("select id from sumaclock.cron_jobs").fetchall()]
    with connect(cron_url, "bench loop") as cron:
        began = time.monotonic()
        for job_id in ids:
            values = {"name": clock_job_name(clock.database_name, job_id), "schedule": SCHEDULE}
            values |= {"command": firing_command(job_id), "database": clock.database_name}
            cron.execute(query("schedule_clock_job"), values)
        return time.monotonic() - began


if __name__ == "__main__":
    main()
