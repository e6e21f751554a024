"""Many tasks that are due at once are settled together, and each ends as it would alone."""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors
from pydantic import SecretStr

from sumaclock_dagster.calendar import pg_cron_for
from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.clock.slots import SLOT_PREFIX
from sumaclock_dagster.db import Connection, connect, query
from sumaclock_dagster.handlers import HandlerRun, Handlers
from sumaclock_dagster.model import ClockMode, Done, Failed, Outcome, RetryLater, Skip, SumaclockError
from sumaclock_dagster.queue.runs import list_runs
from sumaclock_dagster.reconcile.drift import find_drift
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.handler import AI_TASK, Doors, task_handlers
from sumaclock_dagster.tasks.kinds import TaskKinds, TaskRun
from sumaclock_dagster.tasks.records import TaskStatus
from tests import task_process
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database
from tests.tasks import (
    EAGER,
    WEEKLY,
    add_task,
    call,
    core_api_keys,
    fire,
    is_enabled,
    make_due,
    make_task_effects,
    task_effects,
)
from tests.workers import await_ended, claim, running

MANY = 200
# Of settling any number of tasks of one claim at once, whose next occurrences lie in one minute.
MOST_EXCHANGES = 30
# A worker that never lives, so that nobody takes back what it claimed.
NOBODY = 1_000_000
COUNTED = ("sumaclock tasks", "sumaclock clock", "sumaclock slots")
TASK = """
    select cron_job_id, status, status_reason, next_run_at, last_scheduled_for, deleted_at is null, upcoming, zone_data
    from sumaclock.ai_tasks where id = %s"""


def kinds() -> TaskKinds:
    """Kinds whose effect is a row in public.task_effects, and which end as their names say."""
    made = TaskKinds()

    def add(name: str, end: Callable[[TaskRun], Any], *, together: bool = True, **policy: Any) -> None:
        def kind(run: TaskRun) -> Any:
            run.connection.execute(
                "insert into public.task_effects (key, task_id, scheduled_for, trigger, attempt)"
                " values (%s, %s, %s, %s, %s)",
                [run.idempotency_key, run.task_id, run.scheduled_for, run.trigger.value, run.attempt],
            )
            return end(run)

        made.register(name, together=together, **policy)(kind)

    def fail(run: TaskRun) -> None:
        raise RuntimeError("not today")

    def wait(run: TaskRun) -> None:
        run.connection.execute("select from public.counter for update")

    made.register("quiet", together=True)(lambda run: {"quiet": True})
    add("effect", lambda run: {"said": run.payload.get("say")})
    add("own", lambda run: "alone", together=False)
    add("raises", fail)
    add("unlucky", lambda run: fail(run) if run.attempt == 1 else "lucky", max_attempts=3, backoff_seconds=0.05)
    add("later", lambda run: RetryLater(0.05, "not yet") if run.attempt < 3 else "at last")
    add("breaks", lambda run: run.connection.execute("select 1 / 0"))
    add("skips", lambda run: Skip("nobody is there"))
    add("waits", wait)
    add("commits", lambda run: run.connection.execute("commit"))
    return made


@pytest.fixture(scope="module")
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    """One database for all: each test has its own tasks, and nobody of the organisation "refused" has access."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        made = make_app_database(cluster, name)
        with connect(made.superuser_url, "test superuser") as superuser:
            make_task_effects(superuser)
            superuser.execute("create table public.counter (n int); insert into public.counter values (0)")
            superuser.execute("grant all on public.counter to public")
            superuser.execute(
                "create or replace function sumaclock.owner_has_access(organization_id text, user_id text)"
                " returns boolean language sql as $$ select nullif(organization_id, 'refused') is not null $$"
            )
        yield made
    finally:
        drop_app_database(cluster, name)


@pytest.fixture(params=["jobs", "slots"])
def mode(request: pytest.FixtureRequest) -> ClockMode:
    return request.param  # type: ignore[no-any-return]


@contextmanager
def handlers_of(app_db: AppDatabase, mode: ClockMode = "slots", **settings: Any) -> Iterator[Handlers]:
    values = app_db.settings.model_copy(update={**EAGER, "clock": mode, **settings})
    doors = Doors(values)
    try:
        yield task_handlers(values, kinds(), doors)
    finally:
        doors.close()


def claimed(app: Connection) -> list[HandlerRun]:
    """All pending runs, claimed by nobody who would release them."""
    return [
        HandlerRun(
            id=run.id,
            job_id=run.job_id,
            kind=run.kind,
            organization_id=run.organization_id,
            user_id=run.user_id,
            payload={},
            scheduled_at=run.scheduled_at,
            trigger=run.trigger,
            attempt=run.attempt,
            deadline=None,
            log=logging.LoggerAdapter(logging.getLogger("test"), {}),
        )
        for run in claim(app, NOBODY, 1000)
    ]


def placed(app: Connection, handlers: Handlers, count: int, **arguments: Any) -> list[UUID]:
    """New tasks, placed together."""
    with app.transaction():
        tasks = [add_task(app, **arguments) for _ in range(count)]
    runs = claimed(app)
    assert all(isinstance(outcome, Done) for outcome in together(handlers, runs))
    end = "update sumaclock.cron_runs set status = 'done', finished_at = now() where id = any(%s)"
    app.execute(end, [[run.id for run in runs]])
    return tasks


def due(app: Connection, tasks: Sequence[UUID]) -> list[HandlerRun]:
    """Runs of these tasks, in order, whose minute has come; claimed."""
    with app.transaction():
        for task in tasks:
            make_due(app, task)
            fire(app, task)
    return claimed(app)


def together(handlers: Handlers, runs: Sequence[HandlerRun]) -> Sequence[Outcome | None]:
    return handlers.of_many[AI_TASK](runs)


def ends(app: Connection, tasks: Sequence[UUID]) -> list[tuple[str, ...]]:
    """The status of each task's runs."""
    return [tuple(run.status for run in api.list_task_runs(app, task)) for task in tasks]


# ---- as alone


def make_cases(app: Connection, instant: datetime) -> dict[str, UUID]:
    """A task of each sort that there is, by name. instant: of those that happen once, in some days."""
    huge = "update sumaclock.ai_tasks set payload = ('[1' || repeat('0', 5000) || ']')::jsonb where id = %s"
    made = {name: add_task(app, title=name) for name in ("plain", "next", "paused", "edited", "deleted", "twice")}
    made |= {name: add_task(app, title=name) for name in ("missed", "early", "by hand", "locked", "job deleted")}
    made |= {name: add_task(app, title=name, kind=name) for name in ("own", "raises", "unlucky", "later", "breaks")}
    made |= {name: add_task(app, title=name, kind=name) for name in ("skips", "nowhere")}
    made["refused"] = add_task(app, title="refused", organization_id="refused")
    made["refused by hand"] = add_task(app, title="refused by hand", organization_id="refused")
    made["broken payload"] = add_task(app, title="broken payload")
    app.execute(huge, [made["broken payload"]])
    made |= {name: add_task(app, title=name, kind=name, instant=instant) for name in ("quiet", "fails")}
    app.execute("update sumaclock.ai_tasks set kind = 'raises' where id = %s", [made["fails"]])
    made |= {name: add_task(app, title=name) for name in ("broken cron", "unknown zone")}
    return made


def fire_cases(app: Connection, tasks: dict[str, UUID]) -> list[int]:
    """All that happens to them before a worker looks, in one transaction. Returns the runs that this wrote."""
    before = app.execute("select coalesce(max(id), 0) from sumaclock.cron_runs").fetchone()
    assert before is not None
    with app.transaction():
        for name, task in tasks.items():
            if name not in ("early", "locked"):
                make_due(app, task, minutes_ago=60 * 24 * 15 if name == "missed" else 1)
            match name:
                case "edited":
                    fire(app, task)
                    call(app, "update_task", task_id=task, cron="15 7 * * *")
                case "paused":
                    fire(app, task)
                    call(app, "pause_task", task_id=task, reason="on holiday")
                case "deleted":
                    fire(app, task)
                    call(app, "delete_task", task_id=task)
                case "by hand" | "refused by hand":
                    call(app, "run_task_now", task_id=task)
                case "broken cron":
                    app.execute("update sumaclock.ai_tasks set cron = '0 9 31 2 *' where id = %s", [task])
                    fire(app, task)
                case "unknown zone":
                    app.execute("update sumaclock.ai_tasks set timezone = 'Nowhere/Land' where id = %s", [task])
                    fire(app, task)
                case "missed":
                    fire(app, task, "catch_up")
                case _:
                    fire(app, task, count=2 if name == "twice" else 1)
    rows = app.execute("select id from sumaclock.cron_runs where id > %s order by id", before).fetchall()
    return [row[0] for row in rows]


def ended_as(app_db: AppDatabase, app: Connection, tasks: dict[str, UUID]) -> dict[str, Any]:
    """How each task and its runs ended, without the ids that differ."""
    found: dict[str, Any] = {}
    with open_clock(app, app_db.cron_url) as clock:
        for name, task_id in tasks.items():
            row = app.execute(TASK, [task_id]).fetchone()
            assert row is not None
            job_id, *task = row
            runs = list_runs(app, job_id=job_id)
            job = clock.find(job_id)
            said = {
                "task": task,
                "runs": sorted(repr((run.trigger, run.status, run.attempts, run.result, run.error)) for run in runs),
                "task runs": [
                    (run.scheduled_for, run.trigger, run.status, run.result, run.error, run.finished_at is None)
                    for run in api.list_task_runs(app, task_id)
                    if run.trigger != "manual"
                ],
                "by hand": [(run.status, run.result, run.error) for run in api.list_task_runs(app, task_id)],
                "effects": len(task_effects(app, task_id)),
                "enabled": is_enabled(app, task_id),
                "clock job": job and job.schedule,
            }
            text = repr(said).replace(str(task_id), "<task>").replace(str(job_id), "<job>")
            found[name] = re.sub(r"line \d+", "line", text)
    return found


def test_every_sort_of_task_ends_together_as_it_does_alone(
    app_db: AppDatabase, app: Connection, mode: ClockMode
) -> None:
    """200 tasks of one minute, in two worlds that differ by nothing but that."""
    found, sizes = {}, []
    # The same in both, also where a minute begins between them.
    instant = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(days=3)
    for world in ("alone", "together"):
        with handlers_of(app_db, mode) as handlers:
            settle = handlers.of_many.pop(AI_TASK)

            def counted(
                runs: Sequence[HandlerRun], settle: Any = settle, world: str = world
            ) -> Sequence[Outcome | None]:
                outcomes: Sequence[Outcome | None] = settle(runs)
                sizes.append(len([outcome for outcome in outcomes if outcome is not None]))
                return outcomes

            if world == "together":
                handlers.of_many[AI_TASK] = counted
            with app.transaction():
                tasks = make_cases(app, instant)
                tasks |= {f"more {n}": add_task(app, {"say": n}) for n in range(MANY - len(tasks))}
            with running(app_db, handlers, clock=mode, claim_batch=MANY, handler_threads=20):
                await_placed(app, tasks)
                with connect(app_db.app_url, "test locking") as other, other.transaction():
                    make_due(other, tasks["locked"], minutes_ago=1)
                    runs = fire_cases(app, tasks)
                    locked = [run.id for run in list_runs(app, job_id=api.get(app, tasks["locked"]).cron_job_id)]
                    await_ended(app, [run for run in runs if run not in locked], 60)
                await_ended(app, runs, 60)
            found[world] = ended_as(app_db, app, tasks)
            effects = {name: len(task_effects(app, task)) for name, task in tasks.items()}
            assert {effects[f"more {n}"] for n in range(100)} == {1}
            assert (effects["locked"], effects["twice"], effects["edited"], effects["paused"]) == (1, 1, 0, 0)
    assert max(sizes) > 5, "nothing was settled together"
    assert sum(sizes) > MANY
    for name, alone in found["alone"].items():
        assert found["together"][name] == alone


def await_placed(app: Connection, tasks: dict[str, UUID]) -> None:
    rows = app.execute("select id from sumaclock.cron_runs where finished_at is null").fetchall()
    await_ended(app, [row[0] for row in rows], 60)
    unplaced = "select title from sumaclock.ai_tasks where id = any(%s) and next_run_at is null"
    assert app.execute(unplaced, [list(tasks.values())]).fetchall() == []


# ---- one claim


def test_the_number_of_statements_does_not_grow_with_the_number_of_tasks(
    app_db: AppDatabase, app: Connection, mode: ClockMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchanges = {}
    with handlers_of(app_db, mode) as handlers:
        # Connections and prepared statements are there from now on.
        few, many = (placed(app, handlers, count, kind="quiet", cron=WEEKLY) for count in (20, MANY))
        for tasks in (few, many):
            runs = due(app, tasks)
            with monkeypatch.context() as patch:
                count = counting(patch)
                outcomes = together(handlers, runs)
            exchanges[len(tasks)] = len(count)
            assert all(isinstance(outcome, Done) for outcome in outcomes)
            assert ends(app, tasks) == [("done",)] * len(tasks)
    assert exchanges[20] == exchanges[MANY]
    assert 10 < exchanges[MANY] <= MOST_EXCHANGES


def counting(patch: pytest.MonkeyPatch) -> list[None]:
    """Grows by one with each exchange with PostgreSQL on behalf of tasks."""
    original = psycopg.Connection.wait
    seen: list[None] = []

    def wait(self: psycopg.Connection[Any], *args: Any, **kwargs: Any) -> Any:
        if self.info.parameter_status("application_name") in COUNTED:
            seen.append(None)
        return original(self, *args, **kwargs)

    patch.setattr(psycopg.Connection, "wait", wait)
    return seen


def test_each_task_is_placed_where_its_row_says(app_db: AppDatabase, app: Connection, mode: ClockMode) -> None:
    with handlers_of(app_db, mode) as handlers, open_clock(app, app_db.cron_url, mode) as clock:
        tasks = [placed(app, handlers, 1, cron=f"{n} 9 * * {n % 7}")[0] for n in range(12)]
        together(handlers, due(app, tasks))
        jobs = {api.get(app, task).cron_job_id for task in tasks}
        assert [drift for drift in find_drift(app, clock) if drift.job_id in jobs] == []
        schedules = {pg_cron_for(api.get(app, task).next_run_at) for task in tasks}  # type: ignore[arg-type]
        if mode == "slots":
            assert schedules <= {job.schedule for job in clock.listed(SLOT_PREFIX)}
        else:
            assert schedules == {job.schedule for job in clock.listed() if job.job_id in jobs}


def test_the_start_of_each_kind_is_its_own(app_db: AppDatabase, app: Connection) -> None:
    with handlers_of(app_db) as handlers:
        tasks = placed(app, handlers, 20)
        together(handlers, due(app, tasks))
    (runs,) = zip(*(api.list_task_runs(app, task) for task in tasks), strict=True)
    assert len({run.started_at for run in runs}) == 20
    in_order = sorted(runs, key=lambda run: run.started_at)
    assert all(run.finished_at <= later.started_at for run, later in pairwise(in_order))


def test_a_locked_task_and_the_second_run_of_a_job_are_left(app_db: AppDatabase, app: Connection) -> None:
    with handlers_of(app_db) as handlers:
        tasks = placed(app, handlers, 3)
        runs = due(app, tasks)
        with connect(app_db.app_url, "test locking") as other, other.transaction():
            other.execute("select from sumaclock.ai_tasks where id = %s for update", [tasks[1]])
            fire(app, tasks[0])
            outcomes = together(handlers, runs + claimed(app))
        assert [type(outcome) for outcome in outcomes] == [Done, type(None), Done, type(None)]
        assert ends(app, tasks) == [("done",), (), ("done",)]


def test_a_job_whose_lock_is_held_is_placed_by_the_next_attempt(app_db: AppDatabase, app: Connection) -> None:
    with handlers_of(app_db) as handlers:
        tasks = placed(app, handlers, 2)
        runs = due(app, tasks)
        with connect(app_db.app_url, "test locking") as other, other.transaction():
            other.execute(query("lock_job"), {"job_id": runs[0].job_id})
            first, second = together(handlers, runs)
        assert (first, type(second)) == (None, Done)
        assert handlers[AI_TASK].function(runs[0]) == Done({"fired": "at an earlier attempt"})
    assert [len(task_effects(app, task)) for task in tasks] == [1, 1]


def test_what_pg_cron_keeps_waiting_is_settled_and_placed_later(app_db: AppDatabase, app: Connection) -> None:
    with handlers_of(app_db, "jobs") as handlers:
        tasks = placed(app, handlers, 3)
        runs = due(app, tasks)
    away = SecretStr("postgresql://nobody@127.0.0.1:1/nowhere")
    with handlers_of(app_db, "jobs", cron_database_url=away) as handlers:
        with pytest.raises(SumaclockError, match="Cannot connect"):
            together(handlers, runs)
        assert isinstance(handlers[AI_TASK].function(runs[0]), RetryLater)
    with handlers_of(app_db, "jobs") as handlers:
        assert together(handlers, runs) == [Done({"fired": "at an earlier attempt"})] * 3
    assert [len(task_effects(app, task)) for task in tasks] == [1, 1, 1]


def test_what_waits_for_a_strangers_lock_takes_nobody_with_it(app_db: AppDatabase, app: Connection) -> None:
    with handlers_of(app_db) as handlers:
        tasks = [*placed(app, handlers, 2), *placed(app, handlers, 1, kind="waits")]
        runs = due(app, tasks)
        with connect(app_db.app_url, "test locking") as other, other.transaction():
            other.execute("select from public.counter for update")
            with pytest.raises(errors.LockNotAvailable):
                together(handlers, runs)
        assert ends(app, tasks) == [()] * 3
        assert [handlers[AI_TASK].function(run).__class__ for run in runs] == [Done] * 3
    assert [len(task_effects(app, task)) for task in tasks] == [1, 1, 1]


def test_tasks_with_an_access_check_in_python_fire_one_by_one(app_db: AppDatabase, app: Connection) -> None:
    with handlers_of(app_db, access_check="tests.tasks:check_access") as handlers:
        tasks = placed(app, handlers, 2)
        runs = due(app, tasks)
        assert together(handlers, runs) == [None, None]
        assert [handlers[AI_TASK].function(run).__class__ for run in runs] == [Done] * 2


def test_a_kind_that_ends_the_shared_transaction_makes_nothing_happen_twice(
    app_db: AppDatabase, app: Connection
) -> None:
    with handlers_of(app_db) as handlers:
        tasks = placed(app, handlers, 4)
        app.execute("update sumaclock.ai_tasks set kind = 'commits' where id = %s", [tasks[2]])
        runs = due(app, tasks)
        outcomes = together(handlers, runs)
        assert [type(outcome) for outcome in outcomes] == [Failed, Failed, Failed, type(None)]
        assert isinstance(handlers[AI_TASK].function(runs[3]), Done)
        assert ends(app, tasks) == [("failed",)] * 3 + [("done",)]
        assert all("ended the transaction" in outcome.error for outcome in outcomes[:3] if isinstance(outcome, Failed))
        assert together(handlers, runs) == [*outcomes[:3], Done({"fired": "at an earlier attempt"})]
    assert [len(task_effects(app, task)) for task in tasks] == [1, 1, 1, 1]


def test_a_kind_that_asks_for_no_connection_begins_no_savepoint(
    app_db: AppDatabase, app: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with handlers_of(app_db) as handlers:
        quiet, effect = placed(app, handlers, 1, kind="quiet"), placed(app, handlers, 1)
        counts = []
        for task in (quiet, effect):
            (run,) = due(app, task)
            with monkeypatch.context() as patch:
                seen = counting(patch)
                handlers[AI_TASK].function(run)
                counts.append(len(seen))
    # SAVEPOINT, the effect itself, RELEASE.
    assert counts[1] == counts[0] + 3


# ---- workers


def test_rule_7_two_workers_of_which_one_is_killed(app_db: AppDatabase, app: Connection) -> None:
    """Each task fires twice in the same minute, so both workers have runs of the same tasks."""
    with handlers_of(app_db) as handlers:
        tasks = placed(app, handlers, MANY, kind="effect")
    settings: dict[str, Any] = {**EAGER, "dead_session_seconds": 1.0, "max_lost": 100, "clock": "slots"}
    settings |= {"claim_batch": 100, "handler_threads": 100}
    workers = [task_process.spawn("serve", app_db, **settings) for _ in range(2)]
    try:
        for worker in workers:
            task_process.serving(worker)
        with app.transaction():
            occurrences = {task: make_due(app, task) for task in tasks}
            runs = [run for task in tasks for run in fire(app, task, count=2)]
        killing = threading.Timer(0.15, workers[0].kill)
        killing.start()
        await_ended(app, runs, 120)
        killing.join()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert {task: task_effects(app, task) for task in tasks} == {
        task: [(occurrence, "clock")] for task, occurrence in occurrences.items()
    }
    assert ends(app, tasks) == [("done",)] * MANY
    assert all(len(core_api_keys(app, task)) == 1 for task in tasks)
    outcomes = app.execute(
        "select status::text, count(*) from sumaclock.cron_runs where id = any(%s) group by 1", [runs]
    )
    # Of the two firings of a task one did it, or found that it had done so before.
    assert dict(outcomes.fetchall()) == {"done": MANY, "skipped": MANY}
    assert all(api.get(app, task).status is TaskStatus.ACTIVE for task in tasks)
    with open_clock(app, app_db.cron_url, "slots") as clock:
        jobs = {api.get(app, task).cron_job_id for task in tasks}
        assert [drift for drift in find_drift(app, clock) if drift.job_id in jobs] == []
