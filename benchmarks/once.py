"""One-off commands: how fast do pg_cron's runners drain them?

    python benchmarks/once.py [--commands 2000] [--runners 4] [--rounds 3]

On a private cluster of its own in a temporary folder, with real pg_cron and all defaults (durable commits). Each
command inserts one row, queued by one `select sumaclock.schedule_once(...)`. `drain` is from the first effect to the
last, `all` from the commit that queued to the last effect: the difference is the wait for the runners' next look.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ground import private_cluster

from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import Connection, connect, with_database
from sumaclock_dagster.embedded.configuration import ClusterFile
from sumaclock_dagster.once.runners import place_runners

TABLE = """
    create table public.effects (round int, runner int default pg_backend_pid(),
                                 at timestamptz default clock_timestamp());
    grant select, insert on public.effects to public"""
LOOKED = "select bool_and(looked_at is not null) from sumaclock.job_runners"
QUEUE = """
    select count(sumaclock.schedule_once(format('insert into public.effects (round) values (%%s)', %s::int)))
    from generate_series(1, %s)"""
OPEN = "select count(*) from sumaclock.job_queue"
RESULT = """
    select count(*), count(distinct runner), extract(epoch from max(at) - min(at))::float8,
           extract(epoch from max(at) - %s)::float8, extract(epoch from min(at) - %s)::float8
    from public.effects where round = %s"""
VERSION = "select current_setting('server_version'), (select extversion from pg_extension where extname = 'pg_cron')"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pg-bin", type=Path, help="folder of another PostgreSQL's programs")
    parser.add_argument("--commands", type=int, default=2000)
    parser.add_argument("--runners", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with private_cluster(pg_bin=arguments.pg_bin) as (_, file):
        measure(file, arguments.commands, arguments.runners, arguments.rounds)


def measure(file: ClusterFile, commands: int, runners: int, rounds: int) -> None:
    with connect(file.superuser_url, "bench") as superuser:
        server, clock_version = one(superuser, VERSION)
    with connect(with_database(file.superuser_url, "sumaclock"), "bench") as superuser:
        superuser.execute(TABLE)
    with connect(file.database_url, "bench") as app, open_clock(app, file.cron_database_url) as clock:
        place_runners(app, clock, runners)
        wait(lambda: one(app, LOOKED)[0] is True)
        print(f"PostgreSQL {server}, pg_cron {clock_version}: {commands} commands, {runners} runners")
        for number in range(1, rounds + 1):
            report(app, number, commands)


def report(app: Connection, number: int, commands: int) -> None:
    app.execute(QUEUE, [number, commands])
    committed = one(app, "select clock_timestamp()")[0]
    wait(lambda: one(app, OPEN)[0] == 0)
    count, sessions, drain, total, first = one(app, RESULT, committed, committed, number)
    assert count == commands, f"{count} effects of {commands} commands"
    print(
        f"round {number}: drain {commands / drain:,.0f} commands/s by {sessions} sessions ({drain:.2f} s); "
        f"first effect {first:.2f} s and all {total:.2f} s after the commit"
    )


def one(conn: Connection, statement: str, *values: object) -> tuple[Any, ...]:
    row = conn.execute(statement, values or None).fetchone()
    assert row is not None
    return tuple(row)


def wait(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.1)


if __name__ == "__main__":
    main()
