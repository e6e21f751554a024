"""Deliveries by worker processes that are killed at random, to a receiver that fails at random."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from time import monotonic

import pytest

from sumaclock_dagster.db import Connection
from tests import delivery_process
from tests.conftest import AppDatabase
from tests.outbox import await_all_ended, by_status, fill, job, queue
from tests.receiver import Answer, Arrival, receiving
from tests.waiting import until

Processes = list["subprocess.Popen[str]"]
KILLS = 7


@pytest.fixture
def processes() -> Iterator[Processes]:
    started: Processes = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def spawn(app_db: AppDatabase, url: str, processes: Processes, count: int) -> None:
    new = [delivery_process.start(app_db.app_url, url) for _ in range(count)]
    processes += new
    for process in new:
        delivery_process.await_started(process)


@pytest.mark.parametrize("honours", [True, False])
def test_workers_killed_at_random_each_key_has_its_effect(
    app_db: AppDatabase, app: Connection, processes: Processes, honours: bool
) -> None:
    rng = random.Random(20261130)
    kinds = [
        *[Answer(takes_seconds=0.02)] * 12,
        Answer(503, work=False),
        Answer(500),
        Answer(how="reset"),
        Answer(how="garbage"),
        Answer(how="hang"),
        Answer(429, work=False),
    ]

    def behave(arrival: Arrival) -> Answer:
        return rng.choice(kinds)

    with receiving(behave, honours) as receiver:
        spawn(app_db, receiver.url, processes, 2)
        keys = fill(app, 150)
        for turn in range(KILLS):
            before = len(receiver.arrivals)
            # In the middle of work, so that something is under way.
            until(lambda: len(receiver.arrivals) > before + 3 or len(receiver.effects) == len(keys), 20, "arrivals")  # noqa: B023
            victim = processes[-1 - turn % 2]
            victim.kill()
            processes.append(delivery_process.start(app_db.app_url, receiver.url))
            keys += fill(app, 10, f"more{turn}-")
        await_all_ended(app, 60)
    assert by_status(app) == {"done": len(keys)}
    assert set(receiver.effects) == set(keys)
    if honours:
        assert set(receiver.effects.values()) == {1}
    assert receiver.most_at_once <= 4
    # Something really was lost and sent again.
    again = app.execute("select count(*) from sumaclock.core_api_jobs where attempts > 1").fetchone()
    assert again is not None
    assert again[0] > 0


def test_a_killed_workers_request_is_sent_again_by_another_with_the_same_key(
    app_db: AppDatabase, app: Connection, processes: Processes
) -> None:
    with receiving(lambda arrival: Answer(how="hang" if arrival.nth == 1 else "answer")) as receiver:
        spawn(app_db, receiver.url, processes, 1)
        queue(app, "k")
        until(lambda: receiver.arrivals, 10, "the request")
        processes[0].kill()
        killed_at = monotonic()
        spawn(app_db, receiver.url, processes, 1)
        await_all_ended(app, 20)
        assert monotonic() - killed_at < 12
    assert (job(app, "k")["status"], job(app, "k")["attempts"]) == ("done", 2)
    assert receiver.effects == {"k": 1}


def test_a_worker_that_stood_still_changes_nothing_when_it_goes_on(
    app_db: AppDatabase, app: Connection, processes: Processes
) -> None:
    with receiving(lambda arrival: Answer(how="hang" if arrival.nth == 1 else "answer")) as receiver:
        spawn(app_db, receiver.url, processes, 1)
        queue(app, "k")
        until(lambda: receiver.arrivals, 10, "the request")
        os.kill(processes[0].pid, signal.SIGSTOP)
        spawn(app_db, receiver.url, processes, 1)
        await_all_ended(app, 20)
        done = job(app, "k")
        os.kill(processes[0].pid, signal.SIGCONT)
        beat = "select heartbeat_at > now() - interval '1 second' from sumaclock.workers where pid = %s"
        until(lambda: app.execute(beat, [processes[0].pid]).fetchone() == (True,), 15, "the worker to go on")
        queue(app, "after")
        await_all_ended(app, 20)
    assert job(app, "k") == done
    assert (done["status"], done["attempts"]) == ("done", 2)
