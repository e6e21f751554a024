"""Executing a task's kind: its effect and the record of it are one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

import psycopg
from psycopg.errors import DeadlockDetected, LockNotAvailable
from psycopg.pq import TransactionStatus

from sumaclock_dagster.db import Connection
from sumaclock_dagster.handlers import HandlerRun
from sumaclock_dagster.model import Done, Failed, Handed, Outcome, Policy, RetryLater, Skip, SumaclockError
from sumaclock_dagster.storable import clean_text, error_text, result_json, storable_outcome
from sumaclock_dagster.tasks.kinds import TaskFunction, TaskKinds, TaskRun
from sumaclock_dagster.tasks.records import TaskTrigger, idempotency_key

OUTCOMES = (Done, Failed, RetryLater, Skip, Handed)
SWALLOWED = (
    "A statement failed on the connection of the task run and the task kind went on, so nothing of it can be kept. Let "
    "the error rise, or execute the statement in a savepoint: `with run.connection.transaction():`."
)
RETRIES_LATER_DEFAULT = 3
RAISES_DEFAULT = 1
Lend = Callable[[], Connection]


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be executed. `payload` is JSON text: whether Python can read it is the task's own concern."""

    task_id: UUID
    kind: str
    title: str
    payload: str
    organization_id: str
    user_id: str
    timezone: str
    scheduled_for: datetime
    trigger: TaskTrigger


@dataclass(frozen=True, slots=True)
class Executed:
    """How it ended: status done, failed or skipped; or running, where a Dagster run goes on with it. `result` is JSON
    text; `error` says why it failed or was skipped."""

    status: str
    result: str | None = None
    error: str | None = None


class TryAgain(Exception):
    """The kind is to be tried again: the whole transaction is to be rolled back."""

    def __init__(self, seconds: float, reason: str) -> None:
        super().__init__(reason)
        self.outcome = RetryLater(seconds, reason)


class TransactionEnded(SumaclockError):
    """The kind ended the transaction that it was lent, so what it did may have happened without its record."""


class Alone(Exception):
    """The task is to be settled in a transaction of its own."""


class _Undo(Exception):
    """Rolls back to the savepoint: only what is done or handed over stays."""


def execute(
    conn: Connection, run: HandlerRun, work: Work, kinds: TaskKinds, result_max_bytes: int, *, together: bool = False
) -> Executed:
    """Execute the kind in the caller's transaction. `together`: other tasks share that.

    Raises TryAgain, TransactionEnded, and psycopg.Error for a connection that was lost. Together it raises Alone for a
    kind that is not made for that, and what came of waiting for others' locks, which alone may not have happened."""
    registered = kinds.get(work.kind)
    if registered is None:
        return Executed("failed", error=f"No task kind '{work.kind}'; SUMACLOCK_TASK_KINDS names the modules of yours.")
    if together and not registered.together:
        raise Alone
    try:
        payload = json.loads(work.payload)
    except Exception as error:  # noqa: BLE001  (jsonb holds numbers and depths that Python refuses)
        text = clean_text(str(error), 1000)
        return Executed("failed", error=f"The payload can't be read: {type(error).__name__}: {text}")

    make = partial(_task_run, run, work, payload)
    outcome, result, raised = _call(conn, registered.function, make, result_max_bytes)
    if together and isinstance(raised, DeadlockDetected | LockNotAvailable):
        raise raised
    _check_transaction(conn, work.kind)
    return _judged(outcome, result, raised is not None, registered.policy, run.attempt)


def _call(
    conn: Connection, function: TaskFunction, make: Callable[[Lend], TaskRun], result_max_bytes: int
) -> tuple[Outcome, str | None, BaseException | None]:
    """The outcome, the result's JSON text, and what the kind raised."""
    outcome: Outcome = Done()
    result = None
    try:
        with _savepoint(conn) as lend:
            value = function(make(lend))
            if conn.info.transaction_status is TransactionStatus.INERROR:
                raise SumaclockError(SWALLOWED)
            outcome = storable_outcome(value) if isinstance(value, OUTCOMES) else Done(value)
            if not isinstance(outcome, Done | Handed):
                raise _Undo
            result = result_json(outcome.result, result_max_bytes) if isinstance(outcome, Done) else None
    except _Undo:
        return outcome, None, None
    except BaseException as error:
        if conn.closed:
            raise
        return Failed(error_text(error)), None, error
    return outcome, result, None


@contextmanager
def _savepoint(conn: Connection) -> Iterator[Lend]:
    """Gives what lends the connection. The savepoint begins when it is first lent: most kinds never ask for it."""
    with ExitStack() as savepoint:
        lent = False

        def lend() -> Connection:
            nonlocal lent
            if not lent:
                lent = True
                savepoint.enter_context(conn.transaction())
            return conn

        yield lend


def _check_transaction(conn: Connection, kind: str) -> None:
    if conn.closed:
        raise psycopg.OperationalError(f"The connection was lost or closed while task kind '{kind}' was at work.")
    if conn.info.transaction_status is not TransactionStatus.INTRANS:
        raise TransactionEnded(
            f"Task kind '{kind}' ended the transaction of its connection, so what it wrote may stand without this "
            "record. Take commit and rollback out of it, or let it use a connection of its own."
        )


def _judged(outcome: Outcome, result: str | None, raised: bool, policy: Policy, attempt: int) -> Executed:
    match outcome:
        case Done():
            return Executed("done", result)
        case Handed():
            return Executed("running")
        case Skip(reason):
            return Executed("skipped", error=reason or "The task kind gave no reason.")
        case RetryLater(seconds, reason):
            if attempt < (policy.max_attempts or RETRIES_LATER_DEFAULT):
                raise TryAgain(seconds, reason)
            return Executed("failed", error=f"Given up after {attempt} attempts: {reason}")
        case Failed(error):
            if raised and attempt < (policy.max_attempts or RAISES_DEFAULT):
                raise TryAgain(backoff(policy.backoff_seconds, policy.backoff_max_seconds, attempt), error)
            return Executed("failed", error=error or "The task kind gave no error.")


def backoff(first_seconds: float, most_seconds: float, attempt: int) -> float:
    """The delay after an attempt: doubled with each, up to the longest."""
    return min(first_seconds * 2.0 ** min(attempt - 1, 60), most_seconds)


def _task_run(run: HandlerRun, work: Work, payload: object, lend: Lend) -> TaskRun:
    return TaskRun(
        task_id=work.task_id,
        kind=work.kind,
        title=work.title,
        payload=payload,
        organization_id=work.organization_id,
        user_id=work.user_id,
        timezone=work.timezone,
        scheduled_for=work.scheduled_for,
        trigger=work.trigger,
        attempt=run.attempt,
        idempotency_key=idempotency_key(work.task_id, work.scheduled_for),
        lend=lend,
        log=run.log,
        cancelled=run.cancelled,
        run_id=run.id,
        job_id=run.job_id,
    )
