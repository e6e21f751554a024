"""A sync of very many jobs of which few have drifted: seconds, CPU, and statements sent to each database.

    python benchmarks/sync_drift.py [--jobs 100000] [--percent 1] [--clock jobs|slots] [--json FILE] [--profile FILE]

On a private cluster of its own in a temporary folder, with real pg_cron and all defaults. Statements are those that
pg_stat_statements counted, `begin` and `commit` included. The drift is of all kinds that a role can mend: a fifth each
of clock jobs that are gone, inactive, of another schedule, of another command, and of jobs that are gone. Where slots
fire, the drift is in the slots instead, and in jobs that have left theirs.
"""

from __future__ import annotations

import argparse
import cProfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from due_at_once import one
from ground import private_cluster, write_down

from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.embedded.configuration import ClusterFile
from sumaclock_dagster.model import ClockMode
from sumaclock_dagster.reconcile.drift import find_drift
from sumaclock_dagster.reconcile.sync import sync

MAKE = """
    insert into sumaclock.cron_jobs (kind, organization_id, user_id, schedule)
    select 'demo', 'bench', 'bench', format('%%s %%s 29 2 *', i %% 60, i / 60 %% 24) from generate_series(1, %s) i"""
TIDY = "vacuum analyze sumaclock.cron_jobs"
# What happened to the clock job whose number is n, of so many in all.
DRIFT = """
    with touched as (
        select jobid, row_number() over (order by jobid) as n from cron.job
        where jobname ~ %(named)s order by random() limit %(count)s
    ), gone as (delete from cron.job where jobid in (select jobid from touched where n %% 4 = 0))
    update cron.job j set
        active = n %% 4 <> 1,
        schedule = case when n %% 4 = 2 then '7 7 7 7 *' else j.schedule end,
        command = case when n %% 4 = 3 then 'select' else j.command end
    from touched where touched.jobid = j.jobid and n %% 4 <> 0"""
JOBS_GONE = (
    "delete from sumaclock.cron_jobs where id in (select id from sumaclock.cron_jobs order by random() limit %s)"
)
JOBS_LEFT = """
    update sumaclock.cron_jobs set slot_since = null
    where id in (select id from sumaclock.cron_jobs order by random() limit %s)"""
COUNTED = """
    select d.datname, sum(s.calls)::bigint from pg_stat_statements s join pg_database d on d.oid = s.dbid
    where s.userid = 'sumaclock_app'::regrole group by 1 order by 1"""


@dataclass
class Cost:
    """seconds: of the clock on the wall. cpu: of this process, seconds. statements: by database."""

    seconds: float = 0.0
    cpu: float = 0.0
    statements: dict[str, int] | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--percent", type=float, default=1)
    parser.add_argument("--clock", choices=("jobs", "slots"), default="jobs")
    parser.add_argument("--json", type=Path, help="append the figures to this file")
    parser.add_argument("--profile", type=Path, help="write what cProfile saw of the sync with drift to this file")
    arguments = parser.parse_args()
    counting = {"shared_preload_libraries": "pg_cron,pg_stat_statements"}
    with private_cluster(counting) as (_, file), connect(file.superuser_url, "bench superuser") as superuser:
        superuser.execute("create extension pg_stat_statements")
        measure(file, superuser, arguments)


def measure(file: ClusterFile, superuser: Connection, arguments: argparse.Namespace) -> None:
    mode: ClockMode = arguments.clock
    jobs, drifting = arguments.jobs, int(arguments.jobs * arguments.percent / 100)
    with connect(file.database_url, "bench") as app, open_clock(app, file.cron_database_url, mode) as clock:
        app.execute(MAKE, [jobs])
        with connect(file.owner_database_url, "bench tidy") as owner:
            owner.execute(TIDY)
        with counted(superuser) as missing:
            report = sync(app, clock)
        assert report.left == []
        with counted(superuser) as looking:
            assert find_drift(app, clock) == []
        make_drift(app, superuser, mode, drifting)
        profile = cProfile.Profile()
        with counted(superuser) as mending:
            report = profile.runcall(sync, app, clock) if arguments.profile else sync(app, clock)
        assert report.left == []
        assert find_drift(app, clock) == []
    if arguments.profile:
        profile.dump_stats(arguments.profile)
    print(f"{jobs} jobs, clock {mode}")
    kinds = ", ".join(f"{number} {kind}" for kind, number in report.counts.items())
    for name, cost in (
        ("a sync, all missing", missing),
        ("a look without drift", looking),
        (f"a sync, {drifting} drifted: {kinds}", mending),
    ):
        print(f"  {cost.seconds:6.2f} s, {cost.cpu:6.2f} s of CPU here, statements {cost.statements}: {name}")
    figures = {"missing": vars(missing), "looking": vars(looking), "mending": vars(mending), "drift": report.counts}
    write_down(arguments.json, "sync_drift", jobs=jobs, drifting=drifting, clock=mode, **figures)


def make_drift(app: Connection, superuser: Connection, mode: ClockMode, drifting: int) -> None:
    """As after work by hand on either side; a superuser did what the app role may not."""
    named = ":cron:" if mode == "jobs" else ":slot:"
    present = one(superuser, "select count(*) from cron.job where jobname ~ %s", named)[0]
    superuser.execute(DRIFT, {"named": named, "count": min(drifting * 4 // 5, present // 2)})
    app.execute(JOBS_GONE if mode == "jobs" else JOBS_LEFT, [drifting // 5])


@contextmanager
def counted(superuser: Connection) -> Iterator[Cost]:
    cost = Cost()
    superuser.execute("select pg_stat_statements_reset()")
    began, cpu = time.monotonic(), time.process_time()
    yield cost
    cost.seconds, cost.cpu = time.monotonic() - began, time.process_time() - cpu
    cost.statements = dict(superuser.execute(COUNTED).fetchall())


if __name__ == "__main__":
    main()
