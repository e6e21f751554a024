"""What a long history costs: claims beside it, and claims while it is pruned.

    python benchmarks/history.py [--finished 1000000] [--pending 100000]

On a private cluster of its own in a temporary folder with all defaults (durable commits). Two app databases: one new,
one with a history and a backlog. Claims of 100 runs are taken from both in turns, so that what else the machine does
meets both alike; then from two copies of the large one, as many from each, while another process prunes the whole
history of the one, and without. Medians.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from ground import private_cluster
from psycopg import sql

from sumaclock_dagster.db import Connection, connect, database_name, query, with_database
from sumaclock_dagster.embedded.binaries import find_binaries
from sumaclock_dagster.embedded.configuration import ClusterFile
from sumaclock_dagster.embedded.creation import run_first_boot
from sumaclock_dagster.migrate import load_migrations, migrate
from sumaclock_dagster.prune import prune_runs
from sumaclock_dagster.queue import claims

BATCH, ROUNDS = 100, 200
RETENTION_DAYS = 30
JOBS = """
    insert into sumaclock.cron_jobs (kind, organization_id, user_id, schedule)
    select 'bench', 'org ' || i % 100, 'user ' || i, '0 0 1 1 *' from generate_series(1, 10000) i"""
HISTORY = """
    insert into sumaclock.cron_runs
        (job_id, status, claimed_by, attempts, scheduled_at, due_at, started_at, finished_at, result)
    select j.id, 'done', 1, 1, t, t, t, t, 'null'
    from (select id, row_number() over () as n from sumaclock.cron_jobs) j,
         lateral (select now() - interval '60 days' + (j.n + k * 10000) * interval '2 seconds' as t
                  from generate_series(0, %s / 10000 - 1) k) g
    order by t"""
PENDING = "insert into sumaclock.cron_runs (job_id) select id from sumaclock.cron_jobs order by random() limit %s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--finished", type=int, default=1_000_000)
    parser.add_argument("--pending", type=int, default=100_000)
    arguments = parser.parse_args()
    with private_cluster() as (_, file):
        measure(file, arguments.finished, arguments.pending)


def measure(file: ClusterFile, finished: int, pending: int) -> None:
    small_url = make_database(file, "bench_small")
    large_url = make_database(file, "bench_large")
    print(f"writing {finished} finished and {pending} pending runs", flush=True)
    with connect(large_url, "bench") as conn:
        conn.execute(HISTORY, [finished])
        for _ in range(pending // 10_000):
            conn.execute(PENDING, [10_000])
        conn.execute("vacuum analyze sumaclock.cron_runs")
    # A queue gets slower with each claim until it is vacuumed, so that each series of claims begins with the same one.
    quiet_url, pruned_url = (copy_database(file, large_url, name) for name in ("bench_quiet", "bench_pruned"))
    alone, beside = claims_in_turns(small_url, large_url)
    pruning, seconds = claims_while_pruning(pruned_url)
    with open_queue(quiet_url) as conn:
        queue = Queue(conn)
        quiet = [queue.timed_claim() for _ in pruning]
    print(f"a claim of {BATCH} runs, median")
    tell("nothing beside it", alone, alone)
    tell(f"{finished} finished and {pending} pending beside it", beside, alone)
    tell(f"the same, {len(quiet)} claims in a row", quiet, quiet)
    tell(f"as many, while all of it is pruned ({seconds:.0f} s)", pruning, quiet)


def tell(what: str, taken: list[float], base: list[float]) -> None:
    median = statistics.median(taken)
    print(f"  {what:50} {1000 * median:6.2f} ms   {median / statistics.median(base):.2f}")


def make_database(file: ClusterFile, name: str) -> str:
    run_first_boot(find_binaries(Path(file.bin_dir)), file.superuser_url, {"app_db": name})
    with connect(with_database(file.owner_database_url, name), "bench migrate") as owner:
        migrate(owner, load_migrations())
    url = with_database(file.owner_database_url, name)
    with connect(url, "bench") as conn:
        conn.execute(JOBS)
    return url


def copy_database(file: ClusterFile, url: str, name: str) -> str:
    with connect(with_database(file.superuser_url, "postgres"), "bench copy") as conn:
        template = sql.Identifier(database_name(url))
        conn.execute(sql.SQL("create database {} template {}").format(sql.Identifier(name), template))
    return with_database(url, name)


def open_queue(url: str) -> Connection:
    conn = connect(url, "bench")
    conn.execute(query("plan_by_index"))
    return conn


class Queue:
    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._claim = claims.Claim(conn)

    def timed_claim(self) -> float:
        """Seconds for one claim. Its runs are written before and ended after, so that the backlog keeps its size."""
        self._conn.execute(PENDING, [BATCH])
        began = time.perf_counter()
        taken = self._claim(1, None, BATCH)
        seconds = time.perf_counter() - began
        assert len(taken) == BATCH
        now = time.time()
        ended = [claims.Ended(run.id, run.attempt, "done", now, now, "null") for run in taken]
        claims.finish(self._conn, 1, ended)
        return seconds


def claims_in_turns(*urls: str) -> list[list[float]]:
    """The seconds of the claims from each of the databases."""
    with ExitStack() as conns:
        queues = [Queue(conns.enter_context(open_queue(url))) for url in urls]
        rounds = [[queue.timed_claim() for queue in queues] for _ in range(ROUNDS)]
    return [list(taken) for taken in zip(*rounds, strict=True)]


def claims_while_pruning(url: str) -> tuple[list[float], float]:
    """The seconds of each claim until the history is gone, and those of the pruning."""
    began = time.monotonic()
    pruner = multiprocessing.Process(target=prune_all, args=(url,))
    pruner.start()
    with open_queue(url) as conn:
        taken = list(until_ended(Queue(conn), pruner))
    pruner.join()
    assert pruner.exitcode == 0
    return taken, time.monotonic() - began


def until_ended(queue: Queue, process: multiprocessing.Process) -> Iterator[float]:
    while process.is_alive():
        yield queue.timed_claim()


def prune_all(url: str) -> None:
    with connect(url, "bench prune") as conn:
        print(f"  pruned {sum(prune_runs(conn, RETENTION_DAYS))} runs", flush=True)


if __name__ == "__main__":
    main()
