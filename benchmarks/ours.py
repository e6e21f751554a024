"""Ours in the peers' benchmark: six roles, one process each, one JSON line on standard output.

    reset | enqueue_one N | enqueue_bulk N | drain N MODE OUT | latency_worker M MODE OUT | latency_produce M OUT

Needs BENCH_DSN: an empty database on a server of your own, as its superuser. BENCH_GAP: seconds between two submits.
Each submitted item is a job of its own with one run, as when many customers' schedules fire in the same minute.
The worker is the one of the Dagster job `work`, in a plain process; `in_dagster.py` measures it inside a Dagster run.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from sumaclock_dagster.handlers import Handlers
from sumaclock_dagster.migrate import load_migrations, migrate
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.worker import Worker, WorkerConfig

# The documented knobs: claims may start large, and one thread is best for handlers that never wait.
MODES: dict[str, dict[str, Any]] = {"default": {}, "tuned": {"claim_batch": 500, "handler_threads": 1}}
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


def make_worker(dsn: str, mode: str, recorder: Recorder) -> Worker:
    handlers = Handlers()
    handlers.register("bench")(lambda run: recorder.hit(run.payload["i"]))
    settings = Settings(database_url=dsn).model_copy(update=MODES[mode])
    config = WorkerConfig.from_settings(settings, worker_id=None, dagster_run_id=None, code_version="bench")
    return Worker(config, handlers, logging.getLogger("bench"))


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
    worker = make_worker(dsn, mode, recorder)
    worker.start()
    recorder.all.wait(280)
    with psycopg.connect(dsn, autocommit=True) as conn:
        left = "select count(*) from sumaclock.cron_runs where finished_at is null"
        while conn.execute(left).fetchone() != (0,):
            time.sleep(0.002)
        done = time.time()
    worker.stop("the queue is drained")
    worker.wait(30)
    return {"first": recorder.first, "last": recorder.last, "done": done, "executed": recorder.n}


def latency_worker(dsn: str, count: int, mode: str, out: str) -> dict[str, Any]:
    recorder = Recorder(count)
    worker = make_worker(dsn, mode, recorder)
    worker.start()
    Path(out + ".ready").write_text("x")
    recorder.all.wait(60)
    worker.stop("all were seen")
    worker.wait(30)
    Path(out).write_text(json.dumps(recorder.start))
    return {"ok": 1}


def latency_produce(dsn: str, count: int, out: str) -> dict[str, Any]:
    gap = float(os.environ.get("BENCH_GAP", "0.02"))
    times: dict[int, tuple[float, float]] = {}
    with psycopg.connect(dsn, autocommit=True) as conn:
        job = conn.execute(
            "insert into sumaclock.cron_jobs (kind, organization_id, user_id, payload, schedule)"
            " values ('warm', 'bench', 'bench', %s, '0 0 1 1 *') returning id",
            [Jsonb({})],
        ).fetchone()
        assert job is not None
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
