"""Ours in the peers' benchmark: six roles, one process each, one JSON line on standard output.

    reset | enqueue_one N | enqueue_bulk N | drain N MODE OUT | latency_worker M MODE OUT | latency_produce M OUT

Needs BENCH_DSN: an empty database on a server of your own, by host and port and as its
superuser. BENCH_GAP: seconds between two submits.
Each submitted item is a job of its own with one run, as when many customers' schedules fire in the same minute.
The worker is a real Dagster run of the job `work`, with its events in Dagster's storage.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dagster as dg
import psycopg

from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock
from sumaclock_dagster.defs.work import work
from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.migrate import load_migrations, migrate
from sumaclock_dagster.settings import Settings

ROOT = Path(__file__).parents[1]
# The documented knobs: claims may start large, and one thread is best for handlers that never wait.
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "tuned": {"claim_batch": 500, "handler_threads": 1, "durable_claims": False},
}
SUBMIT = """
    with job as (
        insert into sumaclock.cron_jobs (kind, organization_id, user_id, payload, schedule)
        select 'bench', 'bench', 'bench', jsonb_build_object('i', i), '0 0 1 1 *' from unnest(%s::int[]) i returning id
    )
    insert into sumaclock.cron_runs (job_id) select id from job"""


class Recorder:
    """Counts handler starts by wall clock; keeps each start's time for up to 5,000 items."""

    def __init__(self, want: int) -> None:
        self.want, self.n = want, 0
        self.first = self.last = 0.0
        self.start: dict[int, float] = {}
        self.all = threading.Event()
        self._keep = want <= 5000

    def hit(self, i: int) -> None:
        now = time.time()
        self.n += 1
        self.first = self.first or now
        self.last = now
        if self._keep:
            self.start.setdefault(i, now)
        if self.n >= self.want:
            self.all.set()


class DagsterWorker:
    """The Dagster job `work`, executed as a real Dagster run in this process, with Dagster's storage on the same server
    and our own settings file."""

    def __init__(self, dsn: str, mode: str, recorder: Recorder) -> None:
        handlers = Handlers()
        handlers.register("bench")(lambda run: recorder.hit(run.payload["i"]))
        settings = Settings(database_url=dsn).model_copy(update=MODES[mode])
        self._dsn = dsn
        self._resource = Sumaclock(settings, handlers, "bench")
        self._home = tempfile.TemporaryDirectory(prefix="sumaclock-bench-")
        shutil.copy(ROOT / "dagster.yaml", self._home.name)
        os.environ["SUMACLOCK_DAGSTER_DATABASE_URL"] = self._dagster_storage()
        self._thread = threading.Thread(target=self._execute)

    def start(self) -> None:
        """Returns when the worker listens."""
        self._thread.start()
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            while conn.execute("select count(*) from sumaclock.worker_sessions").fetchone() == (0,):
                assert self._thread.is_alive(), "the worker's Dagster run ended"
                time.sleep(0.05)

    def end(self) -> None:
        """Let the worker retire by itself, as at the end of its life."""
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            conn.execute("update sumaclock.workers set retires_at = now()")
        self._thread.join()
        self._home.cleanup()

    def _execute(self) -> None:
        with dg.DagsterInstance.from_config(self._home.name) as instance:
            resources = {"sumaclock": self._resource, OWN_IO_KEY: dg.mem_io_manager}
            result = work.execute_in_process(instance=instance, resources=resources)
            assert result.success

    def _dagster_storage(self) -> str:
        name = "bench_dagster"
        with psycopg.connect(self._dsn, dbname="postgres", autocommit=True) as conn:
            if conn.execute("select from pg_database where datname = %s", [name]).fetchone() is None:
                conn.execute(f"create database {name}")
            info = conn.info
            password = f":{quote(info.password)}" if info.password else ""
            return f"postgresql+psycopg2://{quote(info.user)}{password}@{info.host}:{info.port}/{name}"


def reset(dsn: str) -> dict[str, Any]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        name = conn.execute("select current_database()").fetchone()[0]  # type: ignore[index]
        conn.execute("create schema sumaclock")
        conn.execute(f"alter database \"{name}\" set sumaclock.app_role = '{conn.info.user}'")
    with psycopg.connect(dsn, autocommit=True) as conn:
        migrate(conn, load_migrations())
    return {"ok": 1}


def submit(conn: psycopg.Connection[Any], items: list[int]) -> None:
    with conn.transaction():
        conn.execute(SUBMIT, [items], prepare=True)
        conn.execute("notify cron_runs")


def enqueue(dsn: str, count: int, chunk: int) -> dict[str, Any]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        began = time.time()
        for start in range(0, count, chunk):
            submit(conn, list(range(start, min(start + chunk, count))))
        return {"seconds": time.time() - began}


def drain(dsn: str, count: int, mode: str) -> dict[str, Any]:
    recorder = Recorder(count)
    worker = DagsterWorker(dsn, mode, recorder)
    worker.start()
    recorder.all.wait(280)
    with psycopg.connect(dsn, autocommit=True) as conn:
        left = "select count(*) from sumaclock.cron_runs where finished_at is null"
        while conn.execute(left).fetchone() != (0,):
            time.sleep(0.002)
        done = time.time()
    worker.end()
    return {"first": recorder.first, "last": recorder.last, "done": done, "executed": recorder.n}


def latency_worker(dsn: str, count: int, mode: str, out: str) -> dict[str, Any]:
    recorder = Recorder(count)
    worker = DagsterWorker(dsn, mode, recorder)
    worker.start()
    Path(out + ".ready").write_text("x")
    recorder.all.wait(60)
    Path(out).write_text(json.dumps(recorder.start))
    worker.end()
    return {"ok": 1}


def latency_produce(dsn: str, count: int, out: str) -> dict[str, Any]:
    gap = float(os.environ.get("BENCH_GAP", "0.02"))
    times: dict[int, tuple[float, float]] = {}
    with psycopg.connect(dsn, autocommit=True) as conn:
        for i in range(count):
            began = time.time()
            submit(conn, [i])
            times[i] = (began, time.time())
            time.sleep(gap)
    Path(out).write_text(json.dumps(times))
    return {"ok": 1}


def main() -> None:
    dsn = os.environ["BENCH_DSN"]
    match sys.argv[1:]:
        case ["reset"]:
            answer = reset(dsn)
        case ["enqueue_one", count]:
            answer = enqueue(dsn, int(count), 1)
        case ["enqueue_bulk", count]:
            answer = enqueue(dsn, int(count), 1000)
        case ["drain", count, mode, _]:
            answer = drain(dsn, int(count), mode)
        case ["latency_worker", count, mode, out]:
            answer = latency_worker(dsn, int(count), mode, out)
        case ["latency_produce", count, out]:
            answer = latency_produce(dsn, int(count), out)
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
